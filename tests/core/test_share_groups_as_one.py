"""Share groups meet faults, losses and preemption as one; each member ends by itself."""

from random import Random

import pytest

from scheduler_service.core.handlers.skipped_job_ids import SKIPPED, skipping
from scheduler_service.core.messages import (
    FenceRequested,
    NodeSilent,
    Place,
    Preempt,
    Share,
    Spot,
    Unshare,
)
from scheduler_service.core.model import JobClass, JobSpec, JobState, RunPhase, TaskGroup
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import NODE
from tests.core.sharing_desk import HALF, Sharing, key, row, shared
from tests.core.test_enact import DECISION, idle


def test_a_fault_and_the_loss_of_a_node_concern_all_members() -> None:
    d = Sharing()
    one = d.alone(0)
    two = d.beside(lambda job: (row(one, job),), 0)
    taken = d.faulty({0: "XID 79"})
    assert {event.job_id for event in taken.log} == {one, two}
    assert d.free().devices == 7
    d.step(NodeSilent("n1"))
    d.step(FenceRequested("n1", "op"))
    assert d.states(one, two) == [JobState.QUEUED] * 2
    assert not d.state.share_groups.rows
    assert d.state.free_resources.free(1).devices == 7, "the faulty device is nobody's, and not free"


def test_a_leader_goes_on_with_the_groups_that_it_finds() -> None:
    d = shared()
    d.state = d.state.rebuild()
    d.beside(lambda job: (row(1, 2), row(job)), 0, memory=9000)
    assert [len(r.runs) for r in d.group().rows] == [2, 1]


def test_numbers_that_a_backup_may_lack_are_skipped() -> None:
    d = shared()
    assert skipping(d.state.cluster).next_share_group == d.state.cluster.next_share_group + SKIPPED


def test_why_jobs_wait_can_be_told() -> None:
    d = Sharing()
    one = d.submit(JobSpec(("true",), Vector(1000, 1024, 8), estimate_us=600 * SECOND))
    d.place(one, 1, *range(8))
    d.start(one)
    two = d.submit(JobSpec(("true",), Vector(1000, 1024, 1), estimate_us=900 * SECOND))
    limits = ((key(one), HALF), (key(two), HALF))
    d.do(Place(two, (Spot(1, (0,)),), share=Share((row(one, two),), limits)))
    d.start(two)
    waits = d.submit(devices=8)
    for name in ("fifo", "fitgpp", "las"):
        found = explain(d.state, d.job(waits), d.now, Random(0), stages(name, PreemptionSettings()))
        assert found.estimate is not None
        assert found.estimate.at_us == d.now + 900 * SECOND, "device 0 is free once the last member has ended"


def fitgpp(cap: int = 1) -> Sharing:
    """Jobs 1 and 2 share devices 0 to 3 of n1; job 3 has the others. FitGpp is at work."""
    d = Sharing()
    one = d.alone(*range(4), grace=5)
    two = d.beside(lambda job: (row(one), row(job)), 3, memory=2000, grace=20)
    d.start(two)
    d.alone(*range(4, 8), grace=60, cpu=9000)
    d.policy = stages("fitgpp", PreemptionSettings(cap=cap)).policy
    return d


def test_a_group_is_one_candidate_with_the_size_of_all_and_the_longest_grace() -> None:
    d = fitgpp()
    trial = d.trial(2)
    assert d.states(1, 2, 3) == [JobState.STOPPING, JobState.STOPPING, JobState.RUNNING]
    decision = next(event.decision for event in d.told_of if event.decision)
    ours = {score.key.job_id: score for score in decision.candidates}
    assert decision.considered == 2
    assert ours[1].demand == ours[2].demand == Vector(2000, 2048 + 4 * 2000 + 2000, 4)
    assert ours[1].grace_us == ours[2].grace_us == 20 * SECOND
    assert ours[1].chosen
    assert ours[2].chosen
    assert not ours[3].chosen
    assert d.job(trial).state is JobState.QUEUED


def test_a_limit_of_memory_that_changes_alone_changes_the_size_of_the_group() -> None:
    """The group counts as its first member, and the limit is that of the other."""
    d = fitgpp()
    d.policy = idle
    assert d.state.candidates.used, "candidates are followed from here on"
    d.do(Share(d.group().rows, ((key(2), 500),)))
    d.policy = stages("fitgpp", PreemptionSettings()).policy
    d.trial(2)
    decision = next(event.decision for event in d.told_of if event.decision)
    (first, *_) = [score for score in decision.candidates if score.key.job_id == 1]
    assert first.demand == Vector(2000, 2048 + 4 * 2000 + 500, 4)


def test_a_trial_starts_once_the_last_member_has_left_the_devices() -> None:
    d = fitgpp()
    trial = d.trial(4)
    d.exit(1, yielded=True)
    assert d.job(trial).state is JobState.QUEUED
    assert d.earmark(trial).kept.devices == 3
    d.exit(2, yielded=True)
    assert d.job(trial).state is JobState.STARTING
    assert d.states(1, 2) == [JobState.QUEUED] * 2
    assert (d.job(1).preempted_for_trial, d.job(2).preempted_for_trial) == (1, 1)


def test_what_is_promised_to_a_trial_is_shared_with_nobody_else() -> None:
    d = fitgpp()
    d.trial(4)
    d.policy = idle
    late = d.submit(devices=1)
    joins = Share((row(1), row(2), row(late)), ((key(late), 500),))
    for action in (Unshare(2), Share((row(1), row(2, weight=2))), Place(late, (Spot(1, (3,)),), share=joins)):
        assert "is promised to another job" in str(d.refusal(action))


def test_nobody_is_preempted_in_part() -> None:
    """A member that is a trial, or at its cap, protects all."""
    d = fitgpp()
    d.policy = idle
    three = d.beside(lambda job: (row(1), row(2, job)), 3, memory=2000, trial=True)
    d.policy = stages("fitgpp", PreemptionSettings()).policy
    d.trial(2)
    assert d.states(1, 2, three) == [JobState.RUNNING, JobState.RUNNING, JobState.STARTING]
    assert d.job(3).state is JobState.STOPPING


def test_to_name_two_members_is_to_name_one() -> None:
    d = fitgpp()
    d.policy = idle
    trial = d.trial(2)
    d.do(Preempt(1, trial, 1, DECISION), Preempt(2, trial, 1, DECISION))
    assert (d.job(1).preempted_for_trial, d.job(2).preempted_for_trial) == (1, 1)
    assert {run.phase for run in d.state.runs.rows.values() if run.group} == {RunPhase.STOPPING}


def test_a_group_over_two_nodes_releases_on_each_what_it_holds_there() -> None:
    """Two gangs that take turns are one candidate. A trial of two tasks starts where both have left."""
    d = Sharing("n1", "n2")
    gang = JobSpec(("true",), Vector(2000, 2048, 16), JobClass.BEST_EFFORT, gang=(TaskGroup(2, Vector(1000, 1024, 8)),))
    jobs = [d.submit(gang), d.submit(gang)]
    spots = (Spot(1, tuple(range(8))), Spot(2, tuple(range(8))))
    d.do(Place(jobs[0], spots))
    rows = tuple(Row((key(job, 0), key(job, 1))) for job in jobs)
    d.do(Place(jobs[1], spots, share=Share(rows, tuple((member, 900) for one in rows for member in one.runs))))
    for job in jobs:
        for event in (d.ready, d.started):
            for task in (0, 1):
                d.step(event(job, task))
    assert d.states(*jobs) == [JobState.RUNNING] * 2
    d.policy = stages("fitgpp", PreemptionSettings()).policy
    pair = JobSpec(("true",), Vector(2000, 2048, 16), JobClass.TRIAL, gang=(TaskGroup(2, Vector(1000, 1024, 8)),))
    trial = d.submit(pair)
    assert d.states(*jobs, trial) == [JobState.STOPPING, JobState.STOPPING, JobState.QUEUED]
    decision = next(event.decision for event in d.told_of if event.decision)
    alike = 2000 / NODE.cpu_milli, (2048 + 2 * 8 * 900) / NODE.memory_mib, 1.0
    assert [score.size for score in decision.candidates] == pytest.approx([2 * sum(x * x for x in alike) ** 0.5] * 4)
    for job in jobs:
        for task in (0, 1):
            assert d.job(trial).state is JobState.QUEUED
            d.step(d.exited(job, task, yielded=True))
    assert d.job(trial).state is JobState.STARTING


def test_least_attained_service_preempts_a_group_once() -> None:
    """Both members are behind a job that has received less. Each of them alone would make no room."""
    made = stages("las", PreemptionSettings(), own={"threshold": 4})
    d = Sharing(order=order_of(made))
    one = d.submit(devices=8)
    d.place(one, 1, *range(8))
    two = d.beside(lambda job: (row(one, job),), *range(8), memory=900)
    d.policy = made.policy
    d.start(one, two)
    d.step(after=10)
    waits = d.submit(devices=8)
    assert d.states(one, two, waits) == [JobState.STOPPING, JobState.STOPPING, JobState.QUEUED]
    d.exit(one, yielded=True)
    assert d.job(waits).state is JobState.QUEUED
    d.exit(two, yielded=True)
    assert d.job(waits).state is JobState.STARTING
