"""In virtual clusters, jobs grow and move within what is theirs, and whoever has a right to devices has them as before."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import NodeSeen, RunReady, Submitted, VcRequested
from scheduler_service.core.model import EventKind, JobState, OperationKind, Reason, StopReason
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from tests.policies.tenants import OPPORTUNISTIC, elastic, inventory
from tests.policies.test_gandiva_displacing import Sites
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)
RUN = JobState.RUNNING
POOL = "four-2x2"


class Elastic(Sites):
    """`a` introspects and owns a node, as `b` does; there may be more nodes, which are anybody's."""

    own = 4
    """How many devices `a` owns on a node."""

    def __init__(self, *more: str, quota: int = 1) -> None:
        super().__init__()
        for name in more:
            seen = inventory("FOUR")
            self.step(NodeSeen(name, "a", replace(seen, capacity=seen.capacity._replace(memory_mib=4 << 20))))
        if quota != 1:
            self.change("a", (POOL, "node", quota))

    def elastic(self, vc: str, tasks: int = 1, most: int = 4, **wants: Any) -> int:
        """Of one device for each task."""
        job: int = self.reply(Submitted("ann", "", elastic(vc, tasks, most, **wants))).job_id  # type: ignore[union-attr]
        self.begin(job)
        return job

    def size(self, job: int) -> int:
        return len(self.state.runs_of(job))

    def pass_minutes(self, minutes: int) -> list[str]:
        """What the stories say of resizes. Whoever is to stop does, and whoever was placed begins."""
        told = []
        for _ in range(minutes):
            told += [line.text for line in self.step(after=60).log if line.kind is EventKind.UPDATED]
            self.settled()
        return told

    def settled(self) -> None:
        for _ in range(8):
            stopping = [job for job in sorted(self.state.active) if any(r.phase.exits_soon for r in self.state.runs_of(job))]
            for job in stopping:
                self.step(*(self.exited(job, run.task, yielded=True) for run in self.state.runs_of(job)))
            for job in sorted(self.state.jobs.rows):
                self.begin(job)
            if not stopping:
                return


def test_a_guaranteed_job_grows_within_the_cells_of_its_virtual_cluster_and_not_beyond() -> None:
    d = Elastic()
    job = d.elastic("a", most=8)
    d.pass_minutes(10)
    assert d.size(job) == 4
    assert d.guaranteed(job)
    assert len({run.node for run in d.state.runs_of(job)}) == 1
    assert d.pass_minutes(10) == [], "the node of b is not its to grow into"
    mine = d.ask("b", 4)
    assert d.job(mine).state is RUN


def test_it_gives_back_what_another_job_of_its_virtual_cluster_needs_and_nobody_takes_turns() -> None:
    d = Elastic()
    job = d.elastic("a")
    d.pass_minutes(10)
    two = d.ask("a", 2)
    assert (d.job(job).resize_to, d.job(two).state) == (2, JobState.QUEUED)
    d.settled()
    assert (d.size(job), d.job(two).state) == (2, RUN)
    assert d.guaranteed(two)
    assert not d.state.share_groups.rows


def test_an_opportunistic_job_grows_into_idle_cells_and_goes_on_at_its_own_size_when_these_are_reclaimed() -> None:
    d = Elastic()
    blocked = d.ask("a", 4)
    job = d.elastic("a", guarantee=OPPORTUNISTIC)
    assert d.where(job).name != d.where(blocked).name
    d.pass_minutes(10)
    assert d.size(job) == 4
    assert not d.guaranteed(job)
    mine = d.ask("b", 3)
    assert {run.stop_reason for run in d.state.runs_of(job)} == {StopReason.RECLAIMED}
    d.settled()
    assert d.job(mine).state is RUN
    assert d.guaranteed(mine)
    assert (d.size(job), d.job(job).state) == (1, RUN), "it runs at its own size"


def test_nobody_grows_while_anybody_waits_for_idle_cells() -> None:
    d = Elastic()
    d.ask("a", 4)
    d.elastic("a", guarantee=OPPORTUNISTIC)
    d.ask("b", 2)
    waits = d.ask("b", 4, guarantee=OPPORTUNISTIC)
    assert d.waits(waits) is Reason.NO_ROOM
    assert d.pass_minutes(10) == []


def test_a_server_that_is_mostly_free_is_emptied_within_the_cells() -> None:
    d = Elastic("n3", quota=2)
    moved, filler, other = d.ask("a", 1), d.ask("a", 1), d.ask("a", 3)
    assert d.where(filler).name == d.where(moved).name != d.where(other).name
    d.end(filler)
    for _ in range(12):
        d.step(after=60)
    (operation,) = d.state.operations.rows.values()
    assert (operation.kind, operation.job_id) == (OperationKind.MIGRATE, moved)
    (target,) = [run for run in d.state.runs.rows.values() if run.awaits]
    node = d.state.nodes.rows[target.node]
    assert node.name == d.where(other).name
    d.step(RunReady(node.name, node.boot_id, d._next(node), target.key, "n:1", 1))
    d.step(d.exited(moved, yielded=True))
    d.begin(moved)
    assert d.where(moved).name == d.where(other).name
    assert d.guaranteed(moved)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(("grow", "borrow", "mine", "theirs", "end", "time", "time", "time")), st.integers(0, 9)),
    min_size=6,
    max_size=14,
)


@settings(max_examples=examples(15), deadline=None)
@given(ACTIONS)
def test_whatever_grows_the_other_virtual_cluster_has_its_cells_at_once(actions: list[tuple[str, int]]) -> None:
    try_history(Elastic(), actions)


def try_history(d: Elastic, actions: Sequence[tuple[str, int]]) -> None:
    base: dict[int, int] = {}
    for what, n in actions:
        live = sorted(d.state.jobs.rows)
        if what in ("grow", "borrow"):
            wants = {"guarantee": OPPORTUNISTIC} if what == "borrow" else {}
            job = d.elastic("a", n % 2 + 1, **wants)
            base[job] = n % 2 + 1
        elif what == "mine":
            d.ask("a", n % d.own + 1)
        elif what == "theirs":
            d.ask("b", n % 4 + 1)
        elif what == "end" and live and (job := live[n % len(live)]) in d.state.active:
            d.end(job)
        elif what == "time":
            d.pass_minutes(3)
        d.settled()
        for job, tasks in base.items():
            if job in d.state.jobs.rows and d.state.jobs.rows[job].state is RUN:
                assert d.size(job) >= tasks, "nobody is smaller than at first"
                assert len({run.node for run in d.state.runs_of(job)}) <= tasks or d.size(job) == tasks
    for job in [job for job, row in d.state.jobs.rows.items() if row.spec.vc == "b"]:
        d.cancel(job)
        d.settled()
    mine = d.ask("b", 4)
    d.settled()
    assert d.job(mine).state is RUN
    assert d.guaranteed(mine)


def test_without_the_policy_nobody_grows() -> None:
    d = Elastic()
    d.step(VcRequested("a", False, policy=VcPolicy("fifo")))
    job = d.elastic("a")
    d.pass_minutes(10)
    assert d.size(job) == 1


def test_such_a_history_has_jobs_that_grow_and_are_reclaimed() -> None:
    """A fixed one, so that it is known what the random ones are about."""
    d = Elastic()
    d.ask("a", 4)
    job = d.elastic("a", guarantee=OPPORTUNISTIC)
    assert d.pass_minutes(9) == ["tasks 1 -> 4: it grows: devices of n2 were idle for 300 s"]
    try_history(d, [("theirs", 1), ("time", 0), ("time", 0), ("mine", 0)])
    assert (d.size(job), d.job(job).state) == (0, JobState.QUEUED), "all cells are in use by whoever has a right to them"
    assert d.job(job).spec.gang[0].size == 1
