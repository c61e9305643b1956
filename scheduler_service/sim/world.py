"""The loop of a simulation: time advances to the next event, the engine takes a step, and its orders are carried out.

Nothing is decided here. Jobs come from `jobs`, events on nodes from `agents`, and everything else is the `step` that the
service runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from random import Random
from typing import Protocol

from scheduler_service.core.engine import Policy, step
from scheduler_service.core.messages import Accepted, Event, Order, PlanReady, Reply, Step, Stopped, Submitted, VcRequested
from scheduler_service.core.model import Cluster, EventKind
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.model.tenants.exchange import Exchange
from scheduler_service.core.model.values import ZERO, Micros, add, sub
from scheduler_service.core.state.queue_order import OrderOf, always_by_priority
from scheduler_service.core.state.state import State
from scheduler_service.randomness import Drawing
from scheduler_service.sim.agents import Agents
from scheduler_service.sim.exchange import Tenants
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.failures import NO_OUTAGES, Outages
from scheduler_service.sim.jobs import Arrivals, Load, SimJob
from scheduler_service.sim.node_delays import AT_ONCE, Delays
from scheduler_service.sim.nodes import node_name
from scheduler_service.sim.sharing.setup import Setup

ENDED, GUARANTEED = EventKind.ENDED, EventKind.GUARANTEED
HEARD = frozenset({ENDED, GUARANTEED, EventKind.OPPORTUNISTIC})
"""Events of jobs' stories that are used here."""


@dataclass(frozen=True, slots=True)
class Site:
    """The simulated site, without the jobs."""

    nodes: tuple[Inventory, ...]
    policy: Policy
    settings: Settings = DEFAULTS
    order: OrderOf = always_by_priority
    """The order of queues, by the policies of the site and of virtual clusters."""
    delays: Delays = AT_ONCE
    decide_every_us: Micros = 0
    """Events wait for the next multiple of this (the FitGpp paper: a minute); 0: each is taken when it happens. The gathering
    of a gang is not a decision, and does not wait."""
    seed: int = 0
    outages: Outages = NO_OUTAGES
    vcs: tuple[VcRequested, ...] = ()
    tenants: Tenants | None = None
    """How virtual clusters request others' cells; None: they do not."""
    plan_delay_us: Micros = 0
    """How long a plan that the policy delegates takes."""
    sharing: Setup | None = None
    """The speed of jobs by their placement; None: each run works at the rate 1, unless it shares its devices."""


class User(Protocol):
    """A user who does more than submit jobs."""

    def looks_us(self) -> Micros | None:
        """When the user looks next; None if never again."""

    def acts(self, state: State, lives: Mapping[int, Life], now: Micros) -> Iterator[Event]:
        """The user's requests when it is time to look. `lives` has the jobs that have not ended."""


class World:
    """A simulation in progress."""

    def __init__(
        self, site: Site, arrivals: Arrivals, ended: Callable[[Life], None] | None = None, user: User | None = None
    ) -> None:
        """`ended` is called with each job that has ended, which is then dropped. Without it all stay in `lives`."""
        self.site = site
        self.now: Micros = 0
        self.state = State(Cluster("simulated", site.seed), site.settings, site.order)
        rng = Random(f"{site.seed}:agents")
        self.agents = Agents(site.delays, rng, self._finish, site.outages, site.sharing, self._measured_us)
        self._executing = self.agents.executing
        self.lives: dict[int, Life] = {}
        self.exchanges: dict[int, Exchange] = {}
        """All exchanges so far, in their present or final state."""
        self.steps = 0
        self.events = 0
        self._arrivals = arrivals
        self._ended = ended
        self._user = user
        self._live = 0
        """The number of jobs that have not ended."""
        self._decided: Micros = -site.decide_every_us
        """The last time of decisions: at first a period before the beginning, so that those of time 0 are taken then."""
        self._looked: Micros = 0
        """The last time at which tenants looked for missing cells."""
        self._stirred: Micros = 0
        """The last time at which a job came or something happened on a node."""
        self._plans: list[tuple[Micros, PlanReady]] = []
        """Plans that the policy has delegated, each with the time at which it is ready."""
        self._load = Load(ZERO, reduce(add, [inventory.capacity for inventory in site.nodes], ZERO))
        self._step([self.agents.join(node_name(number), inventory) for number, inventory in enumerate(site.nodes, 1)])
        if site.vcs:
            self._step(site.vcs)

    def run(self) -> None:
        """Run until all jobs have ended; those that can never start are left."""
        while (at := self.next_us()) is not None:
            self.advance(at)

    def unfinished_lives(self) -> Iterator[Life]:
        """The jobs that have not ended."""
        return (life for life in self.lives.values() if life.end_us is None)

    def next_us(self) -> Micros | None:
        """The time of the next event, moved to the next time at which decisions are taken."""
        arrival, runs = self._arrivals.next_us(self.now, self._load), self.agents.next_us()
        if arrival is None and not self._live:
            return None  # the nodes no longer matter
        soonest = runs if arrival is None or (runs is not None and runs < arrival) else arrival
        if self._plans:
            soonest = self._plans[0][0] if soonest is None else min(soonest, self._plans[0][0])
        if deadlines := self.state.deadlines:
            soonest = deadlines[0][0] if soonest is None else min(soonest, deadlines[0][0])
        if self._user is not None and (look := self._user.looks_us()) is not None:
            soonest = look if soonest is None else min(soonest, look)
        if (tenants := self.site.tenants) is not None:
            if arrival is None and runs is None and self.now > self._stirred + tenants.patience_us:
                return None  # the same cells would be offered and requested forever
            look = tenants.next_us(self._looked)
            soonest = look if soonest is None else min(soonest, look)
        every = self.site.decide_every_us
        if soonest is None or not every:
            return soonest
        decision = max(-(-soonest // every) * every, self._decided + every)
        gathering = self.agents.gathering_us()
        return decision if gathering is None else min(decision, gathering)

    def advance(self, now: Micros) -> None:
        """Take all events until `now` in one step, and carry out its orders."""
        every = self.site.decide_every_us
        self.now = now
        decides = not every or (now % every == 0 and now > self._decided)
        events = self.agents.advance_to(now, gathering=not decides)
        come: Sequence[SimJob] = ()
        if decides:
            self._decided = now
            come = self._arrivals.take(now, self._load)
        if events or come:
            self._stirred = now
        if decides and (tenants := self.site.tenants) is not None and now >= tenants.next_us(self._looked):
            self._looked = now
            events += tenants.requests(self.state, now)
        if decides and self._user is not None and (look := self._user.looks_us()) is not None and look <= now:
            events += self._user.acts(self.state, self.lives, now)
        while decides and self._plans and self._plans[0][0] <= now:
            events.append(self._plans.pop(0)[1])
        deadlines = self.state.deadlines
        if events or come or (decides and deadlines and deadlines[0][0] <= now):
            self._take_step(events, come)

    def _take_step(self, events: Sequence[Event], come: Sequence[SimJob]) -> None:
        if come:
            taken = self._step([*events, *[Submitted(job.user, "", job.spec) for job in come]])
            self._note_accepted(come, taken.replies[len(events) :])
        else:
            taken = self._step(events)
        for one in taken.delegated:
            plan = PlanReady(one.policy, one.subject, one.question())
            self._plans.append((self.now + self.site.plan_delay_us, plan))
        for order in taken.orders:
            self._obey(order)
        if self._executing.stale:
            self._executing.settle(self.now)
        for line in taken.log:
            if (kind := line.kind) not in HEARD:
                continue
            if kind is ENDED:
                self._end_job(line.job_id)
            elif kind is GUARANTEED:
                self.lives[line.job_id].launches[-1].gains_guarantee(self.now)
            else:
                self.lives[line.job_id].launches[-1].loses_guarantee(self.now)
        if self.site.tenants is not None:
            exchanges = self.state.exchanges
            self.exchanges.update((key, row) for table, key, _, row in taken.entries if table is exchanges)

    def _note_accepted(self, come: Sequence[SimJob], replies: Sequence[Reply | Exception]) -> None:
        for job, reply in zip(come, replies, strict=True):
            assert isinstance(reply, Accepted)
            self.lives[reply.job_id] = Life(job, reply.job_id, job.submit_us)
            self._live += 1
            self._load.asked = add(self._load.asked, job.spec.demand)

    def _obey(self, order: Order) -> None:
        """Carry out an order. If a run was placed and stopped in one step, only the stop is ordered. A real agent would answer
        that it has no such run; here the run begins, and ends immediately."""
        key, life = order.key, self.lives[order.key.job_id]
        if isinstance(order.desired, Stopped) and not self.agents.knows(key):
            run = self.state.runs.rows.get(key)
            if run is not None and run.placed_us == self.now:
                self.agents.come(self.state.jobs.rows[run.job_id], run, life, self.now)
        if not life.job.spec.alternatives:
            self.agents.obey(order, life, self.now)
            return
        before = life.demand()
        self.agents.obey(order, life, self.now)
        self._load.asked = add(sub(self._load.asked, before), life.demand())

    def _step(self, events: Sequence[Event]) -> Step:
        self.steps += 1
        self.events += len(events)
        site = self.site
        taken = step(self.state, events, self.now, Drawing(site.seed, self.steps), site.policy)
        for reply in taken.replies:
            if isinstance(reply, Exception):
                raise reply
        self.state.adopt()
        return taken

    def _measured_us(self) -> Micros | None:
        """The minimum time between measurements of a run that policies want; None: they want no measurements."""
        state = self.state
        if not state.introspects:
            return None
        return min(order.measured_us for order in (state.site_order, *state.vc_orders.values()) if order.introspects)

    def _finish(self, life: Life) -> None:
        """Its demand ends before the engine learns that the job has ended."""
        life.end_us = life.launches[-1].ended_us if life.launches else self.now
        self._load.asked = sub(self._load.asked, life.demand())

    def _end_job(self, job_id: int) -> None:
        life = self.lives[job_id]
        if life.end_us is None:  # it did not do all of its work: its time limit cut it off, or it could never start
            self._finish(life)
        self._live -= 1
        if self._ended is not None:
            del self.lives[job_id]
            self._ended(life)
