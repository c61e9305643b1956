"""Share groups in the core: how they form and dissolve, what they charge, and that they are preempted as one."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.handlers.skipped_numbers import SKIPPED, skipping
from scheduler_service.core.messages import (
    Event,
    FenceRequested,
    Launch,
    NodeSilent,
    Place,
    Preempt,
    Share,
    Spot,
    Step,
    Unshare,
)
from scheduler_service.core.model import JobClass, JobEvent, JobSpec, JobState, RunKey, RunPhase, TaskGroup
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.holdings import together
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.options import FitGppSettings
from scheduler_service.policies.stages import stages
from tests.core.driver import NODE
from tests.core.test_enact import DECISION, Desk, idle

HALF = 18_000
"""MiB: two of these fit into what runs may use of a device."""


def key(job: int, task: int = 0) -> RunKey:
    return RunKey(job, 1, task)


def row(*jobs: int, weight: int = 1) -> Row:
    return Row(tuple(key(job) for job in jobs), weight)


class Sharing(Desk):
    """n1 and n2 have eight devices each. Jobs are placed by hand."""

    def __init__(self, *nodes: str) -> None:
        self.told_of: list[JobEvent] = []
        super().__init__()
        for name in nodes or ("n1",):
            self.join(name)

    def alone(self, *devices: int, node: int = 1, **wants: Any) -> int:
        job = self.submit(devices=len(devices), **wants)
        self.place(job, node, *devices)
        self.start(job)
        return job

    def beside(self, rows: Callable[[int], tuple[Row, ...]], *devices: int, memory: int = HALF, **wants: Any) -> int:
        """A job that starts on these devices, in rows with those who hold them; all may use as much memory."""
        job = self.submit(devices=len(devices), **wants)
        made = rows(job)
        limits = tuple((one, memory) for one in sorted({member for row in made for member in row.runs}))
        self.do(Place(job, (Spot(1, devices),), share=Share(made, limits)))
        return job

    def step(self, *events: Event, after: int = 0) -> Step:
        taken = super().step(*events, after=after)
        self.told_of += taken.log
        return taken

    def group(self) -> ShareGroup:
        (group,) = self.state.share_groups.rows.values()
        return group

    def refusal(self, *plan: object) -> str | None:
        with self.state.supposing():
            return enact(self.state, plan, self.now)  # type: ignore[arg-type]


def plans(taken: Step) -> dict[RunKey, Any]:
    return {order.key: order.desired.share for order in taken.orders if isinstance(order.desired, Launch)}


# ---- how they form and dissolve ----------------------------------------------------------------------------------------


def test_packed_runs_hold_a_device_once_and_charge_their_own_host_resources() -> None:
    d = Sharing()
    one = d.alone(0)
    two = d.beside(lambda job: (row(one, job),), 0)
    assert d.free() == Vector(NODE.cpu_milli - 2000, NODE.memory_mib - 2048, 7)
    assert (d.group().devices, d.group().rows) == (((1, (0,)),), (row(one, two),))
    assert d.run(one).parked_mib == d.run(two).parked_mib == 0
    assert d.state.held_devices == {1: 1}


def test_sliced_runs_charge_what_they_have_on_their_devices_to_their_node() -> None:
    """Each is parked while the other executes."""
    d = Sharing()
    one = d.alone(0, 1)
    two = d.beside(lambda job: (row(one), row(job, weight=3)), 1, memory=9000)
    assert (d.run(one).parked_mib, d.run(two).parked_mib) == (18_000, 9000)
    assert d.free() == Vector(NODE.cpu_milli - 2000, NODE.memory_mib - 2048 - 27_000, 6)


def test_running_members_are_told_of_each_change_of_the_plan() -> None:
    d = Sharing()
    one = d.alone(0)
    job = d.submit(devices=1)
    share = Share((row(one), row(job)), ((key(one), HALF), (key(job), HALF)))
    d.do(Place(job, (Spot(1, (0,)),), share=share))
    first, second = (d.plans_told.last[key(member)] for member in (one, job))
    assert first is not None
    assert second is not None
    assert (first.group, first.generation, first.rows) == (second.group, second.generation, second.rows)
    assert (first.active, second.active) == ((0,), (1,))
    d.do(Share((row(one, weight=2), row(job))))
    again = d.plans_told.last[key(one)]
    assert again is not None
    assert again.generation > first.generation
    assert [r.weight for r in again.rows] == [2, 1]


def test_who_is_left_alone_holds_its_devices_alone_again_and_is_told() -> None:
    d = Sharing()
    one = d.alone(0, 1)
    two = d.beside(lambda job: (row(one), row(job)), 1, 2, memory=9000)
    assert d.free().devices == 5
    d.start(two)
    taken = d.exit(two)
    assert not d.state.share_groups.rows
    assert (d.run(one).group, d.run(one).parked_mib, d.run(one).devices) == (0, 0, (0, 1))
    assert plans(taken) == {key(one): None}
    assert d.free() == Vector(NODE.cpu_milli - 1000, NODE.memory_mib - 1024, 6)


def test_devices_that_no_member_uses_any_more_are_released() -> None:
    d = Sharing()
    one = d.alone(0)
    two = d.beside(lambda job: (row(one, job),), 0, 1, memory=9000)
    three = d.beside(lambda job: (row(one, two, job),), 0, memory=9000)
    d.start(two)
    d.exit(two)
    assert (d.group().devices, d.group().rows) == (((1, (0,)),), (row(one, three),))
    assert d.free().devices == 7


def test_a_group_that_is_open_stays_until_its_last_member_has_left() -> None:
    d = Sharing()
    one = d.submit()
    d.do(Place(one, (Spot(1, (0,)),), share=Share((row(one),), open=True)))
    assert d.group().open
    d.start(one)
    two = d.submit()
    limits = ((key(one), HALF), (key(two), HALF))
    d.do(Place(two, (Spot(1, (0,)),), share=Share((row(one, two),), limits, open=True)))
    d.exit(one)
    assert d.group().rows == (row(two),)
    d.start(two)
    d.exit(two)
    assert not d.state.share_groups.rows
    assert d.free() == NODE


def test_to_cancel_one_member_leaves_the_others() -> None:
    d = Sharing()
    one = d.alone(0)
    two = d.beside(lambda job: (row(one), row(job)), 0, memory=9000)
    d.start(two)
    d.cancel(one)
    assert d.states(one, two) == [JobState.STOPPING, JobState.RUNNING]
    assert d.group().rows == (row(one), row(two)), "it has its turn until it has ended"
    d.exit(one)
    assert d.state.share_groups.rows == {}
    assert d.job(two).state is JobState.RUNNING


def test_two_groups_become_one() -> None:
    d = Sharing()
    one, three = d.alone(0), d.alone(1)
    two = d.beside(lambda job: (row(one, job),), 0, memory=4000)
    four = d.beside(lambda job: (row(three), row(job)), 1, memory=4000)
    numbers = sorted(d.state.share_groups.rows)
    d.do(Share((row(one, two), row(three), row(four))))
    assert (d.group().id, d.group().devices) == (numbers[0], ((1, (0, 1)),))
    assert together(d.state, four) == (one, three, two, four)
    assert [d.run(job).parked_mib for job in (one, two, three, four)] == [4000] * 4


def test_a_job_leaves_its_group_where_nobody_else_uses_its_devices() -> None:
    d = Sharing()
    one, three = d.alone(0), d.alone(1)
    two = d.beside(lambda job: (row(one, job),), 0, memory=4000)
    d.do(Share((row(one, two), row(three)), ((key(three), 4000),)))
    assert d.refusal(Unshare(one)) == f"job {one} uses device 0 of node n1 with others: stop or move one of them"
    d.do(Unshare(three))
    assert (d.run(three).group, d.group().devices, d.group().rows) == (0, ((1, (0,)),), (row(one, two),))


def test_gangs_over_two_nodes_take_turns() -> None:
    """Ousterhout's matrix: a row is switched on all nodes together."""
    d = Sharing("n1", "n2")
    gang = JobSpec(("true",), Vector(2000, 2048, 2), JobClass.BEST_EFFORT, gang=(TaskGroup(2, Vector(1000, 1024, 1)),))
    jobs = [d.submit(gang), d.submit(gang)]
    spots = (Spot(1, (0,)), Spot(2, (0,)))
    d.do(Place(jobs[0], spots))
    rows = tuple(Row((key(job, 0), key(job, 1))) for job in jobs)
    limits = tuple((member, HALF) for row in rows for member in row.runs)
    torn = (Row((key(jobs[0], 0), key(jobs[1], 1))), Row((key(jobs[0], 1), key(jobs[1], 0))))
    assert "of one gang are not in the same rows" in str(d.refusal(Place(jobs[1], spots, share=Share(torn, limits))))
    d.do(Place(jobs[1], spots, share=Share(rows, limits)))
    assert d.group().devices == ((1, (0,)), (2, (0,)))
    assert [run.parked_mib for job in jobs for run in d.state.runs_of(job)] == [HALF] * 4
    assert d.free("n1") == d.free("n2") == Vector(NODE.cpu_milli - 2000, NODE.memory_mib - 2048 - 2 * HALF, 7)


# ---- refusals ----------------------------------------------------------------------------------------------------------


def shared() -> Sharing:
    """1 and 2 share device 0 of n1 and 3 has device 1. 4 waits."""
    d = Sharing()
    one = d.alone(0)
    d.beside(lambda job: (row(one, job),), 0)
    d.alone(1)
    d.submit()
    return d


LIMITS = tuple((key(job), 4000) for job in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Share(()), "a share group has no rows"),
        (Share((Row(()),)), "a row has no runs"),
        (Share((row(1, 1, 2),)), "a run is twice in a row"),
        (Share((row(1, 2, weight=0),)), "a row has weight 0"),
        (Share((row(1, 2),), period_us=0), "a share group has a period of 0 us"),
        (Share((row(9),)), "run 9.1 has ended, or there is none"),
        (Share((row(1, 3),)), "shares devices with run"),
        (Share((row(1, 2),), ((key(3), 5),)), "run 3.1 is given device memory and is in no row"),
        (Share((row(1, 2),), ((key(1), -5),)), "run 1.1 is given -5 MiB"),
        (Share((row(1), row(2)), ((key(1), 37_200),)), "would have 37712 MiB in use of 37683 MiB that share groups may use"),
        (Share((row(1), row(2)), ((key(1), 33_000), (key(2), 33_000))), "n1 has too little for what would be parked there"),
        (Unshare(3), "job 3 is in no share group"),
        (Place(4, (Spot(1, (0,)),), share=Share((row(1, 2),), LIMITS[:2])), "is to share its devices and is in no row"),
        (Place(4, (Spot(1, (0,)),), share=Share((row(4),))), "a device is neither idle nor held by a run of the share group"),
        (Place(4, (Spot(1, (1,)),), share=Share((row(1, 2, 4),), LIMITS[:2])), "neither idle nor held"),
        (Place(4, (Spot(1, (0, 1)),), share=Share((row(1, 2, 3, 4),), LIMITS)), "wrong number of devices"),
        (Place(4, (Spot(1, (0,)),), share=Share((row(1, 2), row(4)))), "would have"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_a_reason(action: Any, why: str) -> None:
    d = shared()
    before = d.state.snapshot()
    assert why in str(enact(d.state, (action,), d.now))
    assert d.state.snapshot() == before


def test_work_without_devices_has_nothing_to_share() -> None:
    d = Sharing()
    one, two = d.alone(0), d.submit(devices=0)
    d.place(two, 1)
    assert "has no devices to share" in str(d.refusal(Share((row(one), row(two)), ((key(one), 4000),))))


def test_faulty_devices_are_not_shared_anew() -> None:
    d = Sharing()
    one, two = d.alone(0), d.submit()
    d.faulty({0: "XID 79"})
    share = Share((row(one, two),), ((key(one), HALF), (key(two), HALF)))
    assert "a device is faulty" in str(d.refusal(Place(two, (Spot(1, (0,)),), share=share)))


# ---- what happens to all members ---------------------------------------------------------------------------------------


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
    d.state = d.state.rebuilt()
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
        found = explain(d.state, d.job(waits), d.now, Random(0), stages(name, FitGppSettings()))
        assert found.estimate is not None
        assert found.estimate.at_us == d.now + 900 * SECOND, "device 0 is free once the last member has ended"


# ---- preemption --------------------------------------------------------------------------------------------------------


def fitgpp(cap: int = 1) -> Sharing:
    """Jobs 1 and 2 share devices 0 to 3 of n1; job 3 has the others. FitGpp is at work."""
    d = Sharing()
    one = d.alone(*range(4), grace=5)
    two = d.beside(lambda job: (row(one), row(job)), 3, memory=2000, grace=20)
    d.start(two)
    d.alone(*range(4, 8), grace=60, cpu=9000)
    d.policy = stages("fitgpp", FitGppSettings(cap=cap)).policy
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


def test_a_trial_starts_once_the_last_member_has_left_the_devices() -> None:
    d = fitgpp()
    trial = d.trial(4)
    d.exit(1, yielded=True)
    assert d.job(trial).state is JobState.QUEUED
    assert d.earmark(trial).kept.devices == 3
    assert d.refusal(Unshare(2)) is not None, "what is promised stays so"
    d.exit(2, yielded=True)
    assert d.job(trial).state is JobState.STARTING
    assert d.states(1, 2) == [JobState.QUEUED] * 2
    assert (d.job(1).preempted_for_trial, d.job(2).preempted_for_trial) == (1, 1)


def test_nobody_is_preempted_in_part() -> None:
    """A member that is a trial, or at its cap, protects all."""
    d = fitgpp()
    d.policy = idle
    three = d.beside(lambda job: (row(1), row(2, job)), 3, memory=2000, trial=True)
    d.policy = stages("fitgpp", FitGppSettings()).policy
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
