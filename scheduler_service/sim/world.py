"""The loop of a simulation: time passes to what happens next, the engine takes a step, and its orders are carried out.

Nothing decides here. What is submitted comes from `jobs`, what happens on nodes from `agents`, and everything else is the
`step` that the service runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from scheduler_service.core.engine import Policy, step
from scheduler_service.core.job import Cluster, RunKey
from scheduler_service.core.messages import Accepted, Event, Joined, NodeSeen, Start, Step, Submitted
from scheduler_service.core.state import DEFAULTS, Settings, State
from scheduler_service.core.topology import Inventory
from scheduler_service.core.values import ZERO, Micros, add, sub
from scheduler_service.drawing import Drawing
from scheduler_service.sim.agents import AT_ONCE, Agents, Delays, What
from scheduler_service.sim.jobs import Arrivals, Load
from scheduler_service.sim.lives import Launch, Life


@dataclass(frozen=True, slots=True)
class Site:
    """What is simulated, but for the jobs."""

    nodes: tuple[Inventory, ...]
    policy: Policy
    settings: Settings = DEFAULTS
    delays: Delays = AT_ONCE
    decide_every_us: Micros = 0
    """Events wait for the next multiple of this (the FitGpp paper: a minute); 0: each is taken when it happens."""
    seed: int = 0


class World:
    """A simulation under way."""

    def __init__(self, site: Site, arrivals: Arrivals) -> None:
        self.site = site
        self.now: Micros = 0
        self.state = State(Cluster("simulated", site.seed), site.settings)
        self.agents = Agents(site.delays, Random(f"{site.seed}:agents"))
        self.lives: dict[int, Life] = {}
        self.steps = 0
        self.events = 0
        self._arrivals = arrivals
        self._asked = self._capacity = ZERO
        for number, inventory in enumerate(site.nodes, 1):
            self._capacity = add(self._capacity, inventory.capacity)
            name = f"node-{number:04}"
            (reply,) = self._step([NodeSeen(name, "1", inventory)]).replies
            assert isinstance(reply, Joined)
            self.agents.join(reply.node, name, "1")

    def run(self) -> None:
        """To the end of all jobs; those that can never start are left over."""
        while (at := self.next_us()) is not None:
            self.advance(at)

    def next_us(self) -> Micros | None:
        """When something is to happen, moved to the next time at which decisions are taken."""
        deadlines = self.state.deadlines
        times = [self.agents.next_us(), self._arrivals.next_us(self.now, self._load()), deadlines[0][0] if deadlines else None]
        soonest = min((at for at in times if at is not None), default=None)
        every = self.site.decide_every_us
        if soonest is None or not every:
            return soonest
        at = -(-soonest // every) * every
        return at if at > self.now or not self.steps else at + every

    def _load(self) -> Load:
        return Load(self._asked, self._capacity)

    def advance(self, now: Micros) -> None:
        """Takes everything that has happened until `now` in one step, and carries out what it orders."""
        self.now = now
        events: list[Event] = []
        for happened, event in self.agents.happened(now):
            events.append(event)
            life = self.lives[happened.key.job_id]
            if happened.what is What.STARTED:
                self._began(life, happened.at, happened.key)
            else:
                life.launches[-1].ended_us = happened.at
                if happened.what is What.FINISHED:
                    life.end_us, life.done_us = happened.at, life.job.work_us
                    self._asked = sub(self._asked, life.job.spec.demand)
        come = self._arrivals.take(now, self._load())
        first = len(events)
        events += [Submitted(job.user, "", job.spec) for job in come]
        taken = self._step(events)
        for job, reply in zip(come, taken.replies[first:], strict=True):
            assert isinstance(reply, Accepted)
            self.lives[reply.job_id] = Life(job, reply.job_id, job.submit_us)
            self._asked = add(self._asked, job.spec.demand)
        for order in taken.orders:
            if isinstance(order, Start):
                self.lives[order.job.id].launches.append(Launch((order.node,), now))
                self.agents.start(order, now)
            else:
                life = self.lives[order.key.job_id]
                life.done_us += self.agents.stop(order.key, order.grace_us, now)
                life.launches[-1].signalled_us = now

    def _began(self, life: Life, at: Micros, key: RunKey) -> None:
        life.launches[-1].began_us = at
        self.agents.works(key, at, life.job.work_us - life.done_us, resumes=life.done_us > 0)

    def _step(self, events: Sequence[Event]) -> Step:
        self.steps += 1
        self.events += len(events)
        taken = step(self.state, events, self.now, Drawing(self.site.seed, self.steps), self.site.policy)
        for reply in taken.replies:
            if isinstance(reply, Exception):
                raise reply
        self.state.adopt()
        return taken
