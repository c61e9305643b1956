"""What jobs that wait have precedence for: those behind them may start if they delay none of them.

A job that waits holds up others on the nodes that are open and could take it, were they empty. There it lacks something, such
as devices. A job behind it cannot delay it if it takes nothing on these nodes, or nothing of what is lacking there and leaves
enough of everything else: so a job without devices may start beside one that waits for devices. Of a gang, a node is to keep
what as many tasks need as it could hold. Nobody need know how long jobs run for that.
"""

from collections.abc import Callable, Iterator

from scheduler_service.core.messages import Place
from scheduler_service.core.model import Job
from scheduler_service.core.model.values import ZERO, Vector, add, fits, times
from scheduler_service.core.state.free_resources import Kept
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import place

_MOST_PARTS = 32
"""If different amounts are kept on more sets of nodes than these, nothing may be taken on others."""


class Precedence:
    """What is to be left on nodes for the jobs that wait, as far as they were looked at."""

    def __init__(self, find: Callable[[State, Job], Place | None] = place) -> None:
        """`find`: where a job has room, by the policy."""
        self._find = find
        self.kept: list[Kept] = []
        """Without a common node of any two."""
        self.jobs: set[int] = set()
        """The jobs that wait."""
        self.nodes = 0
        """All of these nodes: those that the jobs could use."""

    def covers(self, state: State, job: Job) -> bool:
        """Whether a job that waits could use any of the nodes that this one could."""
        return any(part.bits & self.nodes for part in parts_of(state, job))

    def reaches_beyond(self, state: State, job: Job) -> bool:
        """Whether a job could use a node that none of those that wait could."""
        return any(part.bits & ~self.nodes for part in parts_of(state, job))

    def add(self, state: State, job: Job) -> None:
        """The job waits, too."""
        self.jobs.add(job.id)
        for part in parts_of(state, job):
            self._merge(*part)

    def _merge(self, bits: int, need: Vector | None) -> None:
        self.nodes |= bits
        merged: list[Kept] = []
        for old in self.kept:
            if (both := old.bits & bits) == old.bits:
                merged.append(Kept(both, _most(old.need, need)))
            elif both:
                apart = len(self.kept) < _MOST_PARTS
                merged += [Kept(both, _most(old.need, need) if apart else None), Kept(old.bits & ~bits, old.need)]
            else:
                merged.append(old)
            bits &= ~old.bits
        if bits:
            merged.append(Kept(bits, need))
        self.kept = merged

    def place(self, state: State, job: Job) -> Place | None:
        """Where the job has room beside what is kept; None: nowhere."""
        with state.free_resources.keeping(self.kept):
            return self._find(state, job)

    def leaves_enough(self, state: State, job: Job, action: Place) -> bool:
        """Whether the job leaves there what is kept. One that joins others on a device, or takes others' place, does not."""
        taken: dict[int, Vector] = {}
        for spot, demand in zip(action.spots, job.spec.tasks(), strict=True):
            if self.nodes >> spot.node & 1:
                taken[spot.node] = add(taken.get(spot.node, ZERO), demand)
        for node, amount in taken.items():
            need = next((part.need for part in self.kept if part.bits >> node & 1), ZERO)
            if need is None or (action.share is not None and need != ZERO):
                return False
            beside = (n + k if n else 0 for n, k in zip(amount, need, strict=True))
            if need != ZERO and not fits(Vector(*beside), state.free_resources.free(node)):
                return False
        return True

    def is_hopeless(self) -> bool:
        """Of a job that was found to have no room beside what is kept: whether those that ask for the same have none either."""
        return True

    def placed(self, state: State, job: Job, action: Place) -> None:
        """The job starts there."""

    def elsewhere(self) -> list[Kept]:
        """For `FreeResources.keeping`: nothing at all may be taken on nodes that a job which waits could use."""
        return [Kept(self.nodes, None)] if self.nodes else []


def parts_of(state: State, job: Job) -> Iterator[Kept]:
    """In each of the job's configurations, the nodes that could take one of its tasks, and what each is to keep for it."""
    for one in job.in_each_configuration():
        among = state.among(one.spec)
        if not one.spec.gang:
            seats = state.open_nodes.seats(one.spec.demand, among)
            if seats.bits:
                yield Kept(seats.bits, one.spec.demand)
            continue
        bits, need = 0, ZERO
        for group in one.spec.gang:
            seats = state.open_nodes.seats(group.demand, among)
            bits |= seats.bits
            need = add(need, times(group.demand, min(group.size, seats.most)))
        if bits:
            yield Kept(bits, need)


def may_delay(state: State, job: Job, other: Job) -> bool:
    """Whether the job could delay the other one, if it started: an open node could take either."""
    mine = 0
    for part in parts_of(state, job):
        mine |= part.bits
    return any(part.bits & mine for part in parts_of(state, other))


def _most(a: Vector | None, b: Vector | None) -> Vector | None:
    return None if a is None or b is None else Vector(*map(max, a, b))
