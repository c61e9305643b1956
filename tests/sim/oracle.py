"""A scheduler and its cluster in plain loops, to be compared with the engine: slow, short, and written from the FitGpp paper
and docs/adr/0002-fitgpp.md, 0059-precedence.md and 0060-closest-devices.md alone.
Jobs are single tasks; time is counted in whole units, every one of which is looked at.

What the paper leaves to chance is not drawn here: where it "preempts a random BE job" all that may come of it are listed, and
the caller says which it was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from math import sqrt

Amount = tuple[int, int, int]


@dataclass
class Rules:
    trials: bool
    """Trials preempt; else everybody stands in one queue."""
    s: float = 4
    cap: int = 1
    in_flight: int | None = None
    decide_every: int = 0


@dataclass
class Job:
    number: int
    submit: int
    trial: bool
    demand: Amount
    grace: int
    work: int
    done: int = 0
    preempted: int = 0
    node: int | None = None
    began: int = 0
    leaves: int | None = None
    """When it has left, once it was told to."""
    over: int | None = None
    earmark: int | None = None
    """The node on which room is kept for it."""
    kept: Amount = (0, 0, 0)
    victims: list["Job"] = field(default_factory=list)
    """Those that it waits for."""

    def runs(self) -> bool:
        return self.node is not None and self.leaves is None


Draw = Callable[[Job, set[frozenset[int]]], frozenset[int]]


def fits(need: Amount, room: Amount) -> bool:
    return all(n <= r for n, r in zip(need, room, strict=True))


def plus(a: Amount, b: Amount, sign: int = 1) -> Amount:
    return a[0] + sign * b[0], a[1] + sign * b[1], a[2] + sign * b[2]


class Oracle:
    """`starts` is (time, job, node), `told` is (time, victim, trial), in the order in which they are decided."""

    def __init__(self, nodes: list[Amount], jobs: list[Job], rules: Rules, draw: Draw) -> None:
        self.nodes, self.jobs, self.rules, self.draw = nodes, jobs, rules, draw
        self.now = 0
        self.starts: list[tuple[int, int, int]] = []
        self.told: list[tuple[int, int, int]] = []

    def run(self, limit: int = 100_000) -> None:
        every = self.rules.decide_every
        while any(job.over is None for job in self.jobs):
            assert self.now < limit, "it never ends"
            self.pass_time()
            if not every:
                self.decide()
                while self.pass_time():  # those without a grace period leave at once
                    self.decide()
            elif self.now % every == 0:
                self.decide()
            self.now += 1

    # ---- what happens ----

    def pass_time(self) -> bool:
        """Whether somebody's run ended."""
        ended = False
        for job in self.jobs:
            if job.runs() and job.began + job.work - job.done <= self.now:
                self.release(job)
                job.over, ended = self.now, True
            elif job.leaves is not None and job.leaves <= self.now:
                self.release(job)
                job.leaves, ended = None, True
        return ended

    def release(self, job: Job) -> None:
        """What it leaves goes first to the trial that it was preempted for."""
        for trial in self.jobs:
            if job in trial.victims:
                trial.victims.remove(job)
                missing = plus(trial.demand, trial.kept, -1)
                trial.kept = plus(trial.kept, tuple(min(m, d) for m, d in zip(missing, job.demand, strict=True)))  # type: ignore[arg-type]
        job.node = None

    # ---- what is decided ----

    def decide(self) -> None:
        if not self.rules.trials:
            self.first_come_first_served(self.queue(), [])
            return
        for trial in sorted(self.queue(trial=True), key=lambda job: job.number):
            if trial.earmark is not None and trial.kept == trial.demand:
                self.start(trial, trial.earmark)
        self.first_come_first_served(self.queue(trial=False), self.serve_trials())

    def queue(self, trial: bool | None = None) -> list[Job]:
        """Those that were preempted on top, then as they came."""
        waiting = [j for j in self.jobs if j.submit <= self.now and j.over is None and j.node is None]
        return sorted((j for j in waiting if trial in (None, j.trial)), key=lambda j: (not j.preempted, j.number))

    def first_come_first_served(self, queue: list[Job], ahead: list[Job]) -> None:
        """`ahead`: those that wait, and are not to be delayed (docs/adr/0059-precedence.md). More come to them."""
        for job in queue:
            node = self.best_fit(job, ahead)
            if node is None:
                ahead.append(job)
            else:
                self.start(job, node)

    def serve_trials(self) -> list[Job]:
        """Those that best-effort jobs are not to delay."""
        again = True
        while again:
            again = False
            queue = self.queue(trial=True)
            for place, trial in enumerate(queue):
                node = self.best_fit(trial, [])
                if node is not None:
                    again = trial.earmark is not None  # what was kept for it is free for those before it
                    self.start(trial, node)
                    if again:
                        break
                elif trial.earmark is None:
                    if not self.may_preempt():
                        self.serve_behind(queue[place + 1 :], [trial], preempt=False)
                        return []
                    if not self.preempt_for(trial, []):
                        return self.serve_behind(queue[place + 1 :], [trial], preempt=True)
        return []

    def serve_behind(self, trials: list[Job], ahead: list[Job], preempt: bool) -> list[Job]:
        """Whoever can start, or have others leave, on what those ahead cannot use. Returns all that wait."""
        for trial in trials:
            node = self.best_fit(trial, ahead)
            if node is not None:
                self.start(trial, node)
            elif trial.earmark is None and not (preempt and self.may_preempt() and self.preempt_for(trial, ahead)):
                ahead.append(trial)
        return ahead

    def may_preempt(self) -> bool:
        return self.rules.in_flight is None or len(self.waiting_for_victims()) < self.rules.in_flight

    def waiting_for_victims(self) -> list[Job]:
        return [job for job in self.jobs if job.earmark is not None]

    def free(self, node: int) -> Amount:
        """Neither owned nor kept for anybody."""
        room = self.nodes[node]
        for job in self.jobs:
            if job.node == node:
                room = plus(room, job.demand, -1)
            if job.earmark == node:
                room = plus(room, job.kept, -1)
        return room

    def best_fit(self, job: Job, ahead: list[Job]) -> int | None:
        """Of the nodes with room beside what is left for those ahead: one that would not be broken up while it is
        idle as a whole, then one with few idle devices, then the first."""
        for with_devices in (False, True):
            found = []
            for node, (_, _, devices) in enumerate(self.nodes):
                room = self.free(node)
                if job.earmark == node:
                    room = plus(room, job.kept)
                if fits(job.demand, room) and self.leaves_enough(job, node, room, ahead, with_devices):
                    idle = devices - sum(other.demand[2] for other in self.jobs if other.node == node)
                    breaks = idle == devices > job.demand[2]
                    found.append((breaks, idle, node) if job.demand[2] else (False, 0, node))
            if found:
                return min(found)[-1]
        return None

    def leaves_enough(self, job: Job, node: int, room: Amount, ahead: list[Job], with_devices: bool = False) -> bool:
        """`with_devices`: of a job that takes none, where those ahead lack some: beside what comes with them."""
        heads = [head.demand for head in ahead if fits(head.demand, self.nodes[node])]
        if not heads or (with_devices and job.demand[2]):
            return not heads
        need = tuple(max(head[i] for head in heads) for i in range(3))
        fewest = min(head[2] for head in heads)
        lacking = max(fewest - room[2], 0) if with_devices and not any(other.earmark == node for other in self.jobs) else 0
        holders = [other.demand for other in self.jobs if other.node == node and other.demand[2]]
        come = [lacking * min((held[i] // held[2] for held in holders), default=0) for i in range(2)]
        return all(not d or r - d >= n - c for d, r, n, c in zip(job.demand, room, need, (*come, 0), strict=True))

    def start(self, job: Job, node: int) -> None:
        job.earmark, job.kept, job.victims = None, (0, 0, 0), []
        job.node, job.began = node, self.now
        self.starts.append((self.now, job.number, node))

    def preempt_for(self, trial: Job, ahead: list[Job]) -> bool:
        """On nodes that none of those ahead could use."""
        nodes = {n for n, size in enumerate(self.nodes) if not any(fits(head.demand, size) for head in ahead)}
        victims = self.chosen(trial, nodes)
        if not victims:
            return False
        (node,) = {job.node for job in victims}
        assert node is not None
        free = self.free(node)
        trial.earmark, trial.victims = node, victims
        trial.kept = tuple(min(need, there) for need, there in zip(trial.demand, free, strict=True))  # type: ignore[assignment]
        for job in victims:
            job.preempted += 1
            if job.grace:  # else rewinding is allowed: it is killed, and begins again
                job.done += self.now - job.began
            job.leaves = self.now + job.grace
            self.told.append((self.now, job.number, trial.number))
        return True

    # ---- FitGpp, section 3.2 ----

    def chosen(self, trial: Job, nodes: set[int]) -> list[Job]:
        running = [job for job in self.jobs if job.runs() and not job.trial]
        if not running:
            return []
        size = {job.number: self.size(job) for job in running}  # Eqn 1
        largest, longest = max(size.values()), max(job.grace for job in running)

        def score(job: Job) -> float:  # Eqn 3
            return (size[job.number] / largest if largest else 0) + self.rules.s * (job.grace / longest if longest else 0)

        able = [job for job in running if job.preempted < self.rules.cap and job.node in nodes]
        alone = [job for job in able if fits(trial.demand, plus(job.demand, self.free_of(job)))]  # Eqn 2
        if alone:  # Eqn 4; among equals the one that was submitted last
            return [min(alone, key=lambda job: (score(job), -job.number))]
        possible = set(self.drawn(trial, able))
        if not possible:
            return []
        which = self.draw(trial, possible)
        assert which in possible, f"{trial}: {set(which)} cannot be what was drawn; one of {possible} can"
        return [job for job in able if job.number in which]

    def size(self, job: Job) -> float:
        assert job.node is not None
        return sqrt(sum((d / c) ** 2 for d, c in zip(job.demand, self.nodes[job.node], strict=True) if c))

    def free_of(self, job: Job) -> Amount:
        assert job.node is not None
        return self.free(job.node)

    def drawn(self, trial: Job, able: list[Job]) -> Iterator[frozenset[int]]:
        """Runs are drawn until those of one node make room there; those of others are spared, and so is each that turns out to
        be unneeded."""
        for node in range(len(self.nodes)):
            here = [job for job in able if job.node == node]
            for order in permutations(here):  # what is drawn elsewhere in between changes nothing here
                room, taken = self.free(node), []
                for job in order:
                    room = plus(room, job.demand)
                    taken.append(job)
                    if fits(trial.demand, room):
                        yield frozenset(job.number for job in self.needed(trial, room, taken))
                        break

    def needed(self, trial: Job, room: Amount, taken: list[Job]) -> list[Job]:
        needed = []
        for job in taken:
            without = plus(room, job.demand, -1)
            if fits(trial.demand, without):
                room = without
            else:
                needed.append(job)
        return needed
