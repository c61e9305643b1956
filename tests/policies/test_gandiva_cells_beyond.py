"""A guaranteed job grows beyond its guarantee: what it gains so is opportunistic, and a reclaim makes the job smaller."""

import pytest
from hypothesis import given, settings

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    Accepted,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    Step,
    Submitted,
    SuspendRequested,
    VcRequested,
)
from scheduler_service.core.model import EventKind, JobState, Reason, StopReason
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy
from scheduler_service.core.model.values import SECOND
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, request
from tests.policies.test_gandiva_cells_growing import ACTIONS, POOL, RUN, Elastic, try_history
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)


class Beyond(Elastic):
    """`a` owns half a node, and introspects; `b` owns the rest: a node and a half."""

    def __init__(self, a: int = 1, b: int = 1) -> None:
        super().__init__()
        self.own = 2 * a
        self.change("a", (POOL, "switch", a))
        self.change("b", (POOL, "node", 1), (POOL, "switch", b))

    def tasks(self, job: int) -> str:
        """By rank: guaranteed (G), or opportunistic (o)."""
        return "".join("G" if run.guaranteed else "o" for run in self.state.runs_of(job))

    def grown(self, **wants: object) -> int:
        """A job that has grown to two guaranteed tasks, and two beyond these."""
        job = self.elastic("a", **wants)
        told = self.pass_minutes(7)
        assert [text.partition(":")[0] for text in told] == ["tasks 1 -> 4"]
        assert told[0].endswith(" were idle for 300 s; 2 of the tasks are beyond its guarantee")
        assert (self.tasks(job), self.job(job).beyond) == ("GGoo", 2)
        return job

    def asks(self, vc: str, devices: int) -> tuple[Step, int]:
        step = self.step(Submitted("ben", "", request(vc, devices)))
        (reply,) = step.replies
        assert isinstance(reply, Accepted)
        return step, reply.job_id

    def resize(self, job: int, tasks: int) -> object:
        return self.reply(ResizeRequested(job, tasks))

    def requeue(self, job: int) -> None:
        self.step(RequeueRequested(job))

    def rows_of(self, job: int) -> list[list[int]]:
        group = self.state.share_groups.rows.get(self.run(job).group)
        return [] if group is None else [sorted({key.job_id for key in row.runs}) for row in group.rows]

    def memos(self) -> list[str]:
        return sorted(subject for policy, subject in self.state.memos.rows if policy == "gandiva")


def test_a_guaranteed_job_grows_within_its_cells_first_and_then_beyond_them() -> None:
    d = Beyond()
    job = d.grown()
    assert d.at(job) == ["n1[0]", "n1[1]", "n1[2]", "n1[3]"]
    assert list(d.owned().values()) == ["a"]
    assert d.state.opportunistic == {"a": 2}
    assert not d.state.demoted, "it has what is guaranteed to it"


def test_a_reclaim_makes_the_job_smaller_and_is_no_preemption() -> None:
    d = Beyond()
    d.ask("b", 4)
    job = d.grown(grace=60)
    step, two = d.asks("b", 2)
    told = [line for line in step.log if line.job_id == job and line.kind is EventKind.RECLAIMED]
    assert [line.text for line in told] == ["devices that it has beyond its guarantee: tasks 4 -> 2"]
    assert d.waits(two) is Reason.WAITING_FOR_VICTIMS
    runs = d.state.runs_of(job)
    assert {(run.stop_reason, run.stop_for, run.stop_grace_us) for run in runs} == {(StopReason.RESIZED, two, 30 * SECOND)}
    assert d.state.settings.reclaim_grace_us == 30 * SECOND
    assert d.job(job).reason is Reason.RESIZED
    d.settled()
    assert (d.tasks(job), d.job(job).state, d.job(job).preempted_for_trial) == ("GG", RUN, 0)
    assert d.job(two).state is RUN
    assert d.guaranteed(two)
    assert d.pass_minutes(10) == [], "nothing is idle"
    d.end(two)
    d.pass_minutes(7)
    assert d.tasks(job) == "GGoo"


def test_a_job_that_was_suspended_has_as_many_tasks_as_before() -> None:
    d = Beyond()
    job = d.grown()
    for _ in range(2):
        d.step(SuspendRequested(job))
        d.leave(job)
        assert (d.job(job).state, d.job(job).spec.gang[0].size, d.job(job).beyond) == (JobState.SUSPENDED, 2, 2)
        d.step(ResumeRequested(job))
        d.settled()
        assert (d.tasks(job), d.job(job).state, d.job(job).beyond) == ("GGoo", RUN, 2)


def test_a_job_keeps_what_is_not_reclaimed() -> None:
    d = Beyond()
    d.ask("b", 4)
    job = d.grown()
    d.ask("b", 1)
    d.settled()
    assert d.tasks(job) == "GGo"
    assert d.job(job).spec.gang[0].size == 3
    assert len({run.devices for run in d.state.runs_of(job)}) == 3


def test_the_grace_period_of_a_reclaim_is_that_of_the_site_at_most_also_if_the_job_leaves_already() -> None:
    d = Beyond()
    d.ask("b", 4)
    job = d.grown(grace=5000)
    d.resize(job, 1)
    assert {run.stop_grace_us for run in d.state.runs_of(job)} == {5000 * SECOND}
    d.ask("b", 2)
    assert {run.stop_grace_us for run in d.state.runs_of(job)} == {d.state.settings.reclaim_grace_us}
    assert d.job(job).resize_to == 1, "what its user asked for stays"


def test_one_who_owns_the_cells_in_the_same_virtual_cluster_has_them_back_too() -> None:
    d = Beyond(a=2, b=0)
    d.ask("b", 4)
    job = d.elastic("a", most=4)
    d.pass_minutes(7)
    assert d.tasks(job) == "GGGG", "there is no need to go beyond its guarantee"
    two = d.ask("a", 2)
    d.settled()
    assert (d.tasks(job), d.job(two).state) == ("GG", RUN)


def test_a_job_that_takes_its_turn_has_the_grown_one_give_back_what_is_beyond_its_guarantee() -> None:
    d = Beyond()
    job = d.grown()
    other = d.ask("a", 2)
    assert (d.job(job).resize_to, d.job(job).beyond) == (2, 0)
    d.settled()
    assert (d.tasks(job), d.rows_of(other)) == ("GG", [[job], [other]])
    d.end(other)
    d.pass_minutes(7)
    assert (d.tasks(job), d.state.share_groups.rows) == ("GGoo", {})


def test_jobs_take_turns_in_their_cells_if_others_are_idle_on_the_server() -> None:
    d = Beyond()
    first, second = d.ask("a", 2), d.ask("a", 2)
    assert d.rows_of(second) == [[first], [second]]


def test_a_trial_of_its_virtual_cluster_preempts_the_job_as_a_whole_if_it_needs_the_guaranteed_part() -> None:
    d = Beyond()
    d.step(VcRequested("a", False, (Quota(POOL, "switch", 1),), policy=VcPolicy("gandiva")))
    job = d.grown()
    trial = d.ask("a", 2, trial=True)
    for _ in range(4):
        d.settled()
    assert d.job(trial).state is RUN
    assert d.guaranteed(trial)
    assert d.job(job).id == job


def test_an_opportunistic_job_has_nobody_give_anything_back() -> None:
    d = Beyond()
    d.ask("b", 4)
    job = d.grown()
    for vc in ("a", "b"):
        waits = d.ask(vc, 2, guarantee=OPPORTUNISTIC)
        assert d.waits(waits) is Reason.NO_ROOM
    assert d.tasks(job) == "GGoo"


def test_a_job_that_overflows_grows_beyond_its_guarantee_while_it_is_guaranteed() -> None:
    d = Beyond()
    job = d.grown(guarantee=OVERFLOW)
    assert not d.state.overflowing, "it has what is guaranteed to it"
    d.ask("b", 4)
    d.ask("b", 2)
    d.settled()
    assert d.tasks(job) == "GG"


def test_a_size_for_which_its_user_asks_is_guaranteed() -> None:
    d = Beyond()
    job = d.grown()
    refusal = d.resize(job, 3)
    assert isinstance(refusal, FailedPrecondition)
    assert refusal.reason == "NEVER_IN_QUOTA"
    d.resize(job, 2)
    d.settled()
    assert (d.tasks(job), d.job(job).beyond) == ("GG", 0)


def test_another_policy_has_the_job_start_with_what_is_guaranteed_to_it() -> None:
    d = Beyond()
    job = d.grown()
    d.step(VcRequested("a", False, policy=VcPolicy("fifo")))
    assert d.tasks(job) == "GGoo", "it runs on"
    d.requeue(job)
    d.settled()
    assert (d.tasks(job), d.job(job).spec.gang[0].size) == ("GG", 2)


def test_a_virtual_cluster_that_loses_its_cells_has_the_job_run_on_without_a_guarantee() -> None:
    d = Beyond()
    job = d.grown()
    d.change("a", (POOL, "switch", 0))
    assert (d.tasks(job), d.state.demoted) == ("oooo", {"a": {job}})
    d.change("a", (POOL, "switch", 1))
    assert d.tasks(job) == "oooo", "what it has now is more than its virtual cluster owns"
    d.ask("b", 4)
    d.ask("b", 2)
    d.settled()
    assert d.tasks(job) == "GG", "it starts again in its own cells"


def test_one_who_waits_comes_before_what_is_beyond_a_guarantee() -> None:
    d = Beyond()
    d.ask("b", 4)
    job = d.grown()
    waits = d.ask("b", 2, guarantee=OPPORTUNISTIC)
    d.requeue(job)
    d.settled()
    assert d.job(waits).state is RUN
    assert d.tasks(job) == "GG"


def test_a_restart_finds_all_as_it_was() -> None:
    d = Beyond()
    job = d.grown()
    d.requeue(job)
    for run in d.state.runs_of(job)[:2]:
        d.step(d.exited(job, run.task, yielded=True))
    assert [run.guaranteed for run in d.state.runs_of(job)] == [False, False]
    d.settled()
    assert d.tasks(job) == "GGoo"
    d.step(*(d.exited(job, run.task, done=True) for run in d.state.runs_of(job)))
    assert job not in d.state.jobs.rows
    assert not d.state.bindings.rows
    d.pass_minutes(2)
    assert d.memos() == []


@settings(max_examples=examples(15), deadline=None)
@given(ACTIONS)
def test_whatever_grows_beyond_a_guarantee_the_other_virtual_cluster_has_its_cells_at_once(
    actions: list[tuple[str, int]],
) -> None:
    d = Beyond()
    try_history(d, actions)
    _, two = d.asks("b", 2)
    d.settled()
    assert d.job(two).state is RUN
    assert d.guaranteed(two)
