"""Random histories of virtual clusters that go by AlloX, beside one that is served in order and borrows what is idle.

Every step is checked as those of `cells_machine` are. In the end every job has run that can.
"""

from random import Random
from typing import Any

import pytest

from scheduler_service.core.messages import Accepted, CancelRequested, HoldRequested, ReleaseRequested, Submitted, VcRequested
from scheduler_service.core.model import JobState, RunPhase
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Pin, Quota, VcPolicy
from tests.policies.cells_watch import Watched
from tests.policies.plain_cells import Plain
from tests.policies.tenants import other, request
from tests.thorough import LONG, examples

POOLS = {"fast": ("f1", "f2"), "slow": ("s1", "s2", "s3")}
MATCHED = VcPolicy("allox", settings=(("alpha", 0.5),))
PLANNED = VcPolicy("allox", settings=(("alpha", 0.0), ("long", 2.0), ("period", 5.0)))
SIZES = ([1], [1], [1], [2], [4], [2, 2], [1, 1, 1])


class History:
    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.site = Watched(
            {node: "FOUR" for nodes in POOLS.values() for node in nodes}, [PoolPlan(*pool) for pool in POOLS.items()]
        )
        self.site.plain = [Plain(name, ("device", "switch", "node"), (1, 2, 4), 2, nodes) for name, nodes in POOLS.items()]
        self.site.vc("matched", ("fast", "switch", 1), ("slow", "node", 1), policy=MATCHED)
        pins = (("x", "slow", "device", 11),)
        self.site.vc("planned", ("fast", "device", 2), ("slow", "switch", 2), pins=pins, policy=PLANNED)
        self.site.vc("in order", ("fast", "switch", 1), ("slow", "device", 2), policy=VcPolicy("fifo"))

    def submit(self) -> None:
        """One to three jobs in one step."""
        replies = self.site.step(*(self._job() for _ in range(self.draw.choice((1, 1, 3))))).replies
        assert all(isinstance(reply, Accepted) or reply.reason == "NEVER_IN_QUOTA" for reply in replies), replies  # type: ignore[union-attr]

    def _job(self) -> Submitted:
        draw = self.draw
        vc = draw.choice(("matched", "planned", "in order"))
        guarantees = (Guarantee.GUARANTEED, Guarantee.GUARANTEED, Guarantee.GUARANTEED, Guarantee.OVERFLOW)
        guarantee = Guarantee.OPPORTUNISTIC if vc == "in order" and draw.random() < 0.7 else draw.choice(guarantees)
        wants: dict[str, Any] = {"guarantee": guarantee, "trial": draw.random() < 0.2, "priority": draw.choice((0, 0, 0, 1))}
        if vc == "planned" and guarantee is Guarantee.GUARANTEED and draw.random() < 0.2:
            return Submitted(draw.choice("uvw"), "", request(vc, 1, pin="x", estimate=draw.choice((0, 20)), **wants))
        pools = draw.sample(sorted(POOLS), 2)
        wants |= {"pool": draw.choice((pools[0], "")), "estimate": draw.choice((0, 10, 100))}
        if draw.random() < 0.7:
            pool, size = pools[1] if wants["pool"] else "", draw.choice(([1], [2]))
            wants["alternatives"] = (other(*size, pool=pool, estimate=draw.choice((0, 10, 30, 300))),)
        return Submitted(draw.choice("uvw"), "", request(vc, *draw.choice(SIZES), **wants))

    def runs_go_on(self) -> None:
        """A job's tasks come up, or end."""
        state = self.site.state
        if not state.active:
            return
        job = self.draw.choice(sorted(state.active))
        runs = state.runs_of(job)
        if runs[0].phase is RunPhase.STOPPING:
            self.site.step(*(self.site.exited(job, run.task, yielded=True) for run in runs))
        elif state.jobs.rows[job].state is JobState.STARTING:
            self.site.begin(job)
        else:
            self.site.step(*(self.site.exited(job, run.task) for run in runs))

    def user(self) -> None:
        live = sorted(self.site.state.jobs.rows)
        if live:
            self.site.step(self.draw.choice((CancelRequested, HoldRequested, ReleaseRequested))(self.draw.choice(live)))

    def time_passes(self) -> None:
        self.site.step(after=self.draw.choice((1, 6, 60)))

    def plan(self) -> None:
        """One comes, or the process that makes it dies."""
        for at in sorted(self.site.plans):
            if self.draw.random() < 0.2:
                del self.site.plans[at]
            else:
                self.site.step(self.site.plan(*at))

    def quota(self) -> None:
        """A virtual cluster is made smaller, or as large as it was."""
        self._quota(self.draw.randint(1, 2))

    def _quota(self, count: int) -> None:
        pins = (Pin("x", "slow", "device", 11),)
        quotas = (Quota("fast", "device", count), Quota("slow", "switch", count))
        self.site.step(VcRequested("planned", False, quotas, pins))

    def go_on(self, steps: int) -> None:
        many = [self.submit] * 8 + [self.runs_go_on] * 14 + [self.plan] * 3 + [self.time_passes] * 2 + [self.user, self.quota]
        for _ in range(steps):
            self.draw.choice(many)()

    def end(self) -> None:
        """Nobody comes any more, and everybody runs to the end."""
        site, state = self.site, self.site.state
        self._quota(2)
        site.step(*(ReleaseRequested(job.id) for job in sorted(state.jobs.rows.values(), key=lambda job: job.id) if job.held))
        for _ in range(10 + 4 * len(state.jobs.rows)):
            for job in sorted(state.active):
                site.begin(job)
            for job in sorted(state.active):
                told = [run.phase is RunPhase.STOPPING for run in state.runs_of(job)]
                site.step(*(site.exited(job, run.task, yielded=any(told)) for run in state.runs_of(job)))
            self.plan()
            site.step(after=6)
        assert not state.jobs.rows, f"these starve: {state.jobs.rows}"
        assert not state.earmarks.rows
        assert all(binding.pin for binding in state.bindings.rows.values())


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("seed", range(examples(3)))
def test_random_histories(seed: int) -> None:
    history = History(seed)
    history.go_on(150)
    history.end()
