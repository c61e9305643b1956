"""Share groups: how they form and dissolve, what they charge, and what is refused."""

from typing import Any

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.messages import (
    Place,
    RunParkRefused,
    Share,
    Spot,
    Unshare,
)
from scheduler_service.core.model import EventKind, JobClass, JobSpec, JobState, TaskGroup
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.holdings import jobs_together
from scheduler_service.core.state.queue_order import QueueOrder
from tests.core.driver import NODE
from tests.core.sharing_desk import HALF, Sharing, key, plans, row, shared

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


def test_a_member_that_is_not_parked_for_the_turn_of_others_says_so_in_its_story() -> None:
    d = Sharing()
    one = d.alone(0)
    d.beside(lambda job: (row(one), row(job)), 0, memory=9000)
    node, run = d.where(one), d.run(one)
    taken = d.step(RunParkRefused(node.name, node.boot_id, d._next(node), run.key, why="CUDA graphs"))
    (said,) = [line for line in taken.log if line.job_id == one]
    assert said.kind is EventKind.PARK_REFUSED
    assert said.text == "not parked for the turn of others, and keeps its devices until its next park: CUDA graphs"
    assert d.run(one) == run


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


def test_who_had_no_turn_executes_once_nobody_who_has_turns_uses_its_devices() -> None:
    d = Sharing()
    low = d.alone(0)
    high = d.beside(lambda job: (row(job), row(low, weight=0)), 0, memory=9000, trial=True)
    other = d.beside(lambda job: (row(high, job), row(low, weight=0)), 1, memory=9000, trial=True)
    d.start(high, other)
    taken = d.exit(high)
    assert not d.state.share_groups.rows
    assert plans(taken) == {key(low): None, key(other): None}


@pytest.mark.parametrize("measured", [False, True])
def test_all_have_turns_again_once_somebody_leaves_where_no_policy_looks_at_the_rows(measured: bool) -> None:
    """With `measured`, the policy only goes by what is measured, as allox may."""
    d = Sharing(order=lambda _: QueueOrder(introspects=measured))
    low = d.alone(0, 1)
    high = d.beside(lambda job: (row(job), row(low, weight=0)), 0, memory=9000, trial=True)
    equal = d.beside(lambda job: (row(high, job), row(low, weight=0)), 1, memory=9000)
    d.start(high, equal)
    d.exit(high)
    assert d.group().rows == (row(equal), row(low))


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
    assert jobs_together(d.state, four) == (one, three, two, four)
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


LIMITS = tuple((key(job), 4000) for job in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Share(()), "a share group has no rows"),
        (Share((Row(()),)), "a row has no runs"),
        (Share((row(1, 1, 2),)), "a run is twice in a row"),
        (Share((row(1, 2, weight=-1),)), "a row has weight -1"),
        (Share((row(1, 2, weight=0),)), "no row of a share group has a turn"),
        (Share((row(1, 2),), period_us=0), "a share group has a period of 0 us"),
        (Share((row(9),)), "run 9.1 has ended, or there is none"),
        (Share((row(1, 3),)), "shares devices with run"),
        (Share((row(1, 2),), ((key(3), 5),)), "run 3.1 is given device memory and is in no row"),
        (Share((row(1, 2),), ((key(1), -5),)), "run 1.1 is given -5 MiB"),
        (Share((row(1), row(2)), ((key(1), 37_200),)), "would have 37712 MiB in use of 37683 MiB that share groups may use"),
        (
            Share((row(1), row(2)), ((key(1), 33_000), (key(2), 33_000))),
            "n1 has too little, also for what would be parked there: Vector",
        ),
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
