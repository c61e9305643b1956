"""Histories of virtual clusters in which elastic jobs grow beyond their guarantee, at random. Each step is watched as in the
machine of cells, which meets such jobs seldom: who was told to leave and for whom, and that nobody's cells are missing."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler_service.core.messages import (
    Accepted,
    FaultsSeen,
    NodeSeen,
    NodeSilent,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    VcRequested,
)
from scheduler_service.core.model import JobClass, JobState, RunPhase
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VcPolicy
from tests.policies.cells_watch import Watched
from tests.policies.plain_cells import Plain
from tests.policies.tenants import elastic, inventory
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)
NODES = ("n0", "n1", "n2")
ALL = (
    *("grow", "grow", "grow", "theirs", "theirs", "more", "leave", "leave", "leave", "end", "trial", "borrow", "turn"),
    *("quota", "policy", "fault", "silent", "requeue", "resize", "suspend", "time"),
)
ACTIONS = st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 11)), min_size=8, max_size=30)


class Growing(Watched):
    """`a` introspects and owns two switches, `b` owns a node, `c` a switch and goes by priority. One switch is nobody's."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(NODES, "FOUR"), [PoolPlan("p", NODES, ())], bad_node_strikes=0)
        self.plain = [Plain("p", ("device", "switch", "node"), (1, 2, 4), 2, NODES)]
        self.vc("a", ("p", "switch", 2), policy=VcPolicy("gandiva"))
        self.vc("b", ("p", "node", 1))
        self.vc("c", ("p", "switch", 1), policy=VcPolicy("priority"))

    def grows(self, tasks: int, most: int, guarantee: Guarantee) -> None:
        reply = self.reply(Submitted("ann", "", elastic("a", tasks, most, guarantee=guarantee)))
        assert isinstance(reply, Accepted)
        self.begin(reply.job_id)
        self.growing = reply.job_id
        self.step()
        self.growing = 0
        self.leave_all(reply.job_id)

    def leave_all(self, *jobs: int) -> None:
        for job in jobs:
            stopping = [run.task for run in self.state.runs_of(job) if run.phase is RunPhase.STOPPING]
            if stopping:
                self.step(*(self.exited(job, task, yielded=True) for task in stopping))
        for job in sorted(self.state.active):
            self.begin(job)

    def act(self, what: str, n: int) -> None:
        active = sorted(self.state.active)
        some = active[n % len(active)] if active else 0
        up = all(self.node(name).state.name == "UP" for name in NODES)
        if what == "grow":
            self.grows(n % 2 + 1, n % 4 + 3, (Guarantee.GUARANTEED, Guarantee.OVERFLOW)[n // 6])
        elif what == "theirs":
            self.ask("b", n % 4 + 1)
        elif what == "more":
            self.ask("c", n % 2 + 1, priority=n % 3)
        elif what == "turn":
            self.ask("a", n % 2 + 1, priority=n // 10)
        elif what == "trial":
            self.ask("a", n % 2 + 1, trial=True)
        elif what == "borrow":
            self.ask("abc"[n % 3], n % 4 + 1, guarantee=Guarantee.OPPORTUNISTIC)
        elif what == "leave":
            self.leave_all(*active)
        elif what == "quota" and not any(self.job(job).spec.job_class is JobClass.TRIAL for job in active):
            # A trial that loses its guarantee, and its cells to a best-effort job, preempts this in the same step.
            self.change("a", ("p", "switch", n % 3))
            self.change("a", ("p", "switch", 2))
        elif what == "policy":
            self.step(VcRequested("a", False, policy=VcPolicy(("gandiva", "fifo", "fitgpp", "priority")[n % 4])))
        elif what == "fault":
            name = NODES[n % 3]
            self.step(FaultsSeen(name, self.node(name).boot_id, ((n % 4, "XID 79"),) if n % 2 else ()))
        elif what == "silent":
            self.step(NodeSilent(NODES[n % 3])) if up else self.back()
        elif what == "time":
            self.step(after=(61, 301)[n % 2])
        elif some and up:
            self.act_on(what, some, n)
        if not up:
            self.back()

    def act_on(self, what: str, job: int, n: int) -> None:
        if what == "end":
            self.end(job)
        elif what == "requeue":
            self.step(RequeueRequested(job))
        elif what == "resize" and self.job(job).spec.elastic:
            self.step(ResizeRequested(job, n % 4 + 1))
        elif what == "suspend":
            self.step(SuspendRequested(job, park=bool(n % 2)))
            self.step(ResumeRequested(job))

    def back(self) -> None:
        for name in NODES:
            self.step(NodeSeen(name, self.node(name).boot_id + "'", inventory("FOUR")))

    def everybody_ends(self) -> None:
        self.back()
        for name in NODES:
            self.step(FaultsSeen(name, self.node(name).boot_id, ()))
        for job in sorted(self.state.jobs.rows):
            if self.job(job).suspend_requested:
                self.step(ResumeRequested(job))
        for _ in range(20 + 4 * len(self.state.jobs.rows)):
            if not self.state.jobs.rows:
                break
            for job in sorted(self.state.active):
                self.begin(job)
                runs = self.state.runs_of(job)
                told = any(run.phase is RunPhase.STOPPING for run in runs)
                if runs:  # it has not left with another task
                    self.step(*(self.exited(job, run.task, yielded=told) for run in runs))
            if not self.state.active:
                self.step(after=301)  # whoever waits, waits for its time
        assert not self.state.runs.rows
        assert not self.state.bindings.rows, "a cell was never given back"
        assert not self.state.earmarks.rows
        waiting = [job for job in self.state.jobs.rows.values() if job.state is JobState.QUEUED]
        assert not waiting, f"these starve: {waiting}"


@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(ACTIONS)
def test_growth_beyond_a_guarantee_in_any_history(actions: list[tuple[str, int]]) -> None:
    d = Growing()
    for action in actions:
        d.act(*action)
    d.everybody_ends()


def test_such_histories_have_jobs_that_grow_and_give_back() -> None:
    d = Growing()
    for action in (("theirs", 3), ("grow", 0), ("grow", 0), ("more", 1), ("leave", 0), ("theirs", 0)):
        d.act(*action)
    assert d.mixed
    assert d.given_back
    d.everybody_ends()
