"""Random histories with restarts in between, each under other settings. Invariants hold after every step where cells are called
what they were promised as, no step raises, and in the end nothing is bound, kept or promised for nobody."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from scheduler_service.core.allocation.bindings import in_own_cells, kept_on
from scheduler_service.core.cells.queries import lost_some_or_all
from scheduler_service.core.messages import (
    CancelRequested,
    DrainRequested,
    Event,
    NodeSilent,
    RequeueRequested,
    ResumeRequested,
    SuspendRequested,
    UndrainRequested,
    VcChanged,
    VcRequested,
)
from scheduler_service.core.model import JobState, RunPhase
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Pin, Quota, VcPolicy
from scheduler_service.core.model.values import mask_of
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.startup import left_over
from tests.core.driver import spec
from tests.policies.restarts import Restarts
from tests.policies.tenants import inventory
from tests.thorough import LONG, examples

NODES = ("n1", "n2", "n3", "n4")
POOLS = {"p": NODES, "q": NODES, "r": NODES[:2], "": ()}
"""What the pool of all nodes, or of the first two, is called; the others are of one that the scheduler makes."""
MADE = "four-2x2"
CHOSEN = [
    *(stages(name, PreemptionSettings()) for name in ("fifo", "fitgpp", "lrtp", "rand", "thrifty")),
    stages("fifo", PreemptionSettings(), backfilled=True),
    stages("fitgpp", PreemptionSettings(in_order=True)),
]
CELLS = stages("cells", PreemptionSettings())


class History:
    def __init__(self, seed: int, policies: Sequence[str] = ("fifo", "priority", "fitgpp", "lrtp"), sharing: int = 0) -> None:
        """`policies`: of virtual clusters. `sharing`: attempts in each step to change what runs share."""
        self.draw, self.policies = Random(seed), policies
        self.stages = CELLS
        self.pool = self.promised = "p"
        """What it is called, and what it was called when it was last said who owns what."""
        self.site = Restarts(dict.fromkeys(NODES, "FOUR") | {"c1": "CPU4"}, self.plans(), host_percent=10)
        for vc in "ABC":
            self.site.vc(vc)
        self.promise()
        self.site.sharing, self.site.seed = sharing, seed

    def plans(self) -> tuple[PoolPlan, ...]:
        return (PoolPlan(self.pool, POOLS[self.pool], (("rack", 2),)),) if self.pool else ()

    def promise(self) -> None:
        """Says what each owns, in one step."""
        counts = {"A": ("node", 1), "B": ("switch", self.draw.randint(1, 3)), "C": ("device", self.draw.randint(0, 3))}
        events = []
        for vc, (level, count) in counts.items():
            pool = self.draw.choice((self.pool, MADE)) if self.pool == "r" else self.pool or MADE
            policy = VcPolicy(self.draw.choice(self.policies))
            pins = (Pin("x", pool, "device", 4 * self.first(pool)),) if vc == "C" else ()
            events.append(VcRequested(vc, False, (Quota(pool, level, count),), pins, policy=policy))
        self.promised = self.pool
        self.site.renamed = True  # until all have been asked
        for reply in self.site.step(*events).replies:
            assert isinstance(reply, VcChanged) or getattr(reply, "reason", "") in ("CELL_IN_USE", "INFEASIBLE_QUOTAS"), reply
        self.site.renamed = self.renamed()
        self.site.step()

    def first(self, pool: str) -> int:
        """A slot of it."""
        return 3 if pool == MADE else 1

    def renamed(self) -> bool:
        """Whether guaranteed work is in no cell of its own, or cells are bound that are not there (any more)."""
        state, pools = self.site.state, self.site.state.pools
        if pools is None:
            return False
        runs = [run for run in state.runs.rows.values() if run.guaranteed]
        held = [(run.job_id, run.node, mask_of(run.devices)) for run in runs]
        held += [(row.job_id, node, row.mask) for node, rows in kept_on(state).items() for row in rows]
        away = (not in_own_cells(state, state.jobs.rows[job], node, mask) for job, node, mask in held)
        return any(away) or any(any(lost_some_or_all(pools, binding)) for binding in state.bindings.rows.values())

    # ---- what happens ------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        if self.draw.random() < 0.4:
            self.stages = self.draw.choice(CHOSEN)
            self.site.turn_off(self.stages.policy)
        else:
            self.turn_on(self.draw.choice((self.promised, self.promised, *POOLS)))
            if self.draw.random() < 0.5:
                self.site.step()
            if self.site.renamed and self.draw.random() < 0.6:
                self.promise()
        list(left_over(self.site.state))
        self.site.step()

    def turn_on(self, pool: str) -> None:
        self.stages, self.pool = CELLS, pool
        self.site.turn_on(*self.plans(), host_percent=self.draw.choice((0, 10, 50)))
        self.site.renamed = self.renamed()

    def submit(self) -> None:
        draw, pools = self.draw, self.site.state.pools
        trial, priority = draw.random() < 0.4, draw.choice((0, 0, 1))
        if pools is None:
            self.site.submit(spec(draw.randint(0, 4), trial, draw.choice((0, 10)), cpu=draw.choice((500, 1000, 3000))))
        else:
            vc = draw.choice("ABC")
            pin = {"pin": "x"} if vc == "C" and draw.random() < 0.3 else {}
            guarantee = Guarantee.GUARANTEED if pin else draw.choice(list(Guarantee))
            sizes = [1] if pin else draw.choice(([1], [2], [4], [2, 2], [1, 1, 1]))
            more = {"cpus": not pin and draw.random() < 0.3, "lazy": draw.random() < 0.3, **pin}
            self.site.asked(vc, *sizes, trial=trial, priority=priority, guarantee=guarantee, **more)

    def report(self) -> None:
        """Somebody's tasks go on as they do."""
        state = self.site.state
        jobs = [job for job in sorted(state.active) if state.jobs.rows[job].state is not JobState.UNREACHABLE]
        if not jobs:
            return
        job, runs = (found := self.draw.choice(jobs)), state.runs_of(found)
        gang = bool(state.jobs.rows[job].launch_spec.gang)
        begins = [run for run in runs if run.started_us is None and run.phase is not RunPhase.STOPPING]
        if gang and any(run.phase is RunPhase.STARTING for run in runs) and not state.jobs.rows[job].rendezvous:
            self.site.step(*(self.site.ready(job, run.task) for run in runs if run.phase is RunPhase.STARTING))
        elif begins and self.draw.random() < 0.8:
            self.site.step(*(self.site.started(job, run.task) for run in begins))
        else:
            leaves = runs[0].phase is RunPhase.STOPPING
            self.site.step(*(self.site.exited(job, run.task, yielded=leaves) for run in runs))

    def user(self) -> None:
        live = sorted(self.site.state.jobs.rows)
        if live:
            kinds = (CancelRequested, SuspendRequested, ResumeRequested, ResumeRequested, RequeueRequested)
            self.site.step(self.draw.choice(kinds)(self.draw.choice(live)))

    def node(self) -> None:
        name = self.draw.choice(NODES)
        event: Event = self.draw.choice(
            (DrainRequested(name, "", "ann"), UndrainRequested(name), UndrainRequested(name), NodeSilent(name))
        )
        self.site.step(event)
        if isinstance(event, NodeSilent):
            self.site.step(self.seen(name), after=self.draw.choice((1, 30)))

    def seen(self, name: str) -> Event:
        return replace(self.site.seen(name), inventory=inventory("FOUR"))

    def time_passes(self) -> None:
        self.site.step(after=self.draw.choice((1, 5, 61)))

    def explained(self) -> None:
        state = self.site.state
        for job in sorted(state.jobs.rows)[:5]:
            explain(state, state.jobs.rows[job], self.site.now, Random(0), self.stages)
        state.undo()

    def go_on(self, steps: int) -> None:
        many = [self.submit] * 6 + [self.report] * 10 + [self.user, self.node, self.time_passes, self.explained]
        for _ in range(steps):
            self.draw.choice(many)()

    def end(self) -> None:
        """Virtual clusters are on, all is called what it was promised as, and every job is cancelled and leaves."""
        self.turn_on(self.promised)
        self.promise()
        state = self.site.state
        for name in NODES:
            self.site.step(self.seen(name))
        self.site.step(*(CancelRequested(job) for job in sorted(state.jobs.rows)))
        for job in sorted(state.active):
            self.site.step(*(self.site.exited(job, run.task) for run in state.runs_of(job)))
        assert not state.jobs.rows
        assert not state.earmarks.rows
        self.turn_on(self.promised)
        assert all(binding.pin for binding in self.site.state.bindings.rows.values()), "a cell is bound for ever"


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("seed", range(examples(8)))
def test_restarts_under_other_settings(seed: int) -> None:
    _live(History(seed))


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("seed", range(examples(4)))
def test_restarts_under_policies_that_remember(seed: int) -> None:
    _live(History(seed, ("fair", "las", "fifo")))


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("seed", range(examples(4)))
def test_restarts_under_a_policy_that_matches(seed: int) -> None:
    _live(History(seed, ("allox", "allox", "fifo")))


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("seed", range(examples(6)))
def test_restarts_where_devices_are_shared(seed: int) -> None:
    _live(History(seed, ("fifo", "priority", "fitgpp", "las"), sharing=1 + seed % 3))


def _live(history: History) -> None:
    for _ in range(8):
        history.go_on(history.draw.randint(1, 25))
        history.restart()
    history.end()
