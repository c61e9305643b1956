"""Jobs that ask for parts of devices share them, under every policy of a site without virtual clusters."""

from random import Random

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    Accepted,
    DrainRequested,
    MigrateRequested,
    NodeSeen,
    Place,
    ResumeRequested,
    Running,
    Share,
    Spot,
    Submitted,
    SuspendRequested,
)
from scheduler_service.core.model import Array, EventKind, JobState, Reason, Retry, RunKey, ShareMode
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.values import WHOLE, Vector
from scheduler_service.core.state.open_groups import OpenGroups, OpenTo, Room
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.las import attained_service
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.placing.first_fit import place
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, inventory, kinds, spec
from tests.core.parts import PACKED, SLICED, ask, part, places

RUNNING, QUEUED, STOPPING = JobState.RUNNING, JobState.QUEUED, JobState.STOPPING
ONE = Vector(32_000, 65_536, 1)
TWO = Vector(32_000, 65_536, 2)


def site(*nodes: Vector, policy: str = "fifo", settings: Settings = Settings()) -> Driver:  # noqa: B008
    made = policy_of(policy)
    driver = Driver(made.policy, settings, order=order_of(made))
    for number, capacity in enumerate(nodes or (ONE,)):
        driver.join(f"n{number + 1}", capacity)
    return driver


def policy_of(name: str) -> Stages:
    return stages(name, PreemptionSettings(cap=1))


def group(driver: Driver) -> ShareGroup:
    (found,) = driver.state.share_groups.rows.values()
    return found


@pytest.mark.parametrize(("share", "told"), [(PACKED, True), (SLICED, False)])
def test_the_first_job_of_a_device_is_told_that_others_may_be_packed_with_it(share: ShareMode, told: bool) -> None:
    d = site()
    (order,) = d.step(Submitted("ann", "", part(0.5, 4000, share))).orders
    assert isinstance(order.desired, Running)
    assert order.desired.share is not None
    assert order.desired.share.packed is told


@pytest.mark.parametrize("policy", ["fifo", "fitgpp", "las", "fair", "thrifty", "lrtp", "rand"])
def test_jobs_share_a_device_under_every_policy(policy: str) -> None:
    d = site(policy=policy)
    first, second, third = (ask(d, part(0.5, 4000)) for _ in range(3))
    assert d.states(first, second, third) == [RUNNING, RUNNING, QUEUED]
    assert [row.weight for row in group(d).rows] == [500_000, 500_000]
    assert d.run(second).device_memory_mib == 4000
    assert d.free().devices == 0
    d.exit(first)
    d.start(third)
    assert places(d, second, third) == [("n1", 0)] * 2
    for job in (second, third):
        d.exit(job)
    assert not d.state.share_groups.rows
    assert d.free().devices == 1


@pytest.mark.parametrize("policy", ["allox", "allox-priced"])
def test_policies_that_match_jobs_to_devices_take_a_part_for_a_device(policy: str) -> None:
    """A job starts if there is a device for it, and then joins others."""
    d = site(policy=policy)
    first, second = ask(d, part(0.5, 4000)), ask(d, part(0.5, 4000))
    assert d.states(first, second) == [RUNNING, QUEUED]
    d.join("n2", ONE)
    d.start(second)
    assert places(d, first, second) == [("n1", 0)] * 2


def test_a_part_goes_where_least_is_left() -> None:
    d = site(TWO)
    large = ask(d, part(0.7, 1000))
    small = ask(d, part(0.6, 1000))
    assert places(d, large, small) == [("n1", 0), ("n1", 1)]
    assert places(d, ask(d, part(0.3, 1000)), ask(d, part(0.3, 1000))) == [("n1", 0), ("n1", 1)]
    assert d.job(ask(d, part(0.2, 1000))).state is QUEUED, "0 and 0.1 of a device are left"


def test_packed_jobs_are_limited_by_the_memory_that_they_name() -> None:
    """92 % of 40,960 MiB are 37,683."""
    d = site()
    first, second = ask(d, part(memory=20_000)), ask(d, part(memory=17_683))
    assert d.states(first, second) == [RUNNING, RUNNING]
    assert len(group(d).rows) == 1
    assert [d.run(job).part_ppm for job in (first, second)] == [20_000 * WHOLE // 37_683, 17_683 * WHOLE // 37_683]
    assert d.job(ask(d, part(memory=1))).state is QUEUED
    d.exit(first)
    assert d.job(3).state is JobState.STARTING


def test_a_packed_fraction_is_one_of_memory() -> None:
    d = site()
    first, second = ask(d, part(0.25, share=PACKED)), ask(d, part(0.5, share=PACKED))
    assert [d.run(job).device_memory_mib for job in (first, second)] == [37_683 // 4, 37_683 // 2]


def test_packed_jobs_share_with_jobs_of_their_user_unless_the_site_says_otherwise() -> None:
    d = site()
    ask(d, part(0.25, share=PACKED))
    other = ask(d, part(0.25, share=PACKED), user="ben")
    assert d.job(other).state is QUEUED
    mine = ask(d, part(0.25, share=PACKED))
    assert d.job(mine).state is QUEUED, "it is behind the other in a queue that is served in order"
    open_to_all = site(settings=Settings(pack_other_users=True))
    jobs = [ask(open_to_all, part(0.25, share=PACKED), user=user) for user in ("ann", "ben")]
    assert open_to_all.states(*jobs) == [RUNNING, RUNNING]


def test_in_a_queue_that_is_not_strict_a_user_is_not_taken_for_another() -> None:
    """ben's job finds no room, and ann's, which asks for the same, does."""
    d = site(policy="las")
    ask(d, part(0.25, share=PACKED))
    other, mine = ask(d, part(0.25, share=PACKED), user="ben"), ask(d, part(0.25, share=PACKED))
    assert d.states(other, mine) == [QUEUED, RUNNING]


def test_jobs_that_share_otherwise_do_not_share() -> None:
    d = site(TWO)
    sliced, packed = ask(d, part(0.25, 1000)), ask(d, part(0.25, 1000, PACKED))
    assert places(d, sliced, packed) == [("n1", 0), ("n1", 1)]
    assert d.job(ask(d, spec(1))).state is QUEUED, "who asks for a whole device has it alone"


def test_a_sliced_job_without_a_limit_leaves_room_for_the_residue_of_others() -> None:
    roomy = site(Vector(32_000, 400_000, 1))
    half, third, fourth, fifth = (ask(roomy, part(fraction)) for fraction in (0.4, 0.2, 0.2, 0.1))
    assert roomy.run(half).device_memory_mib == 37_683 - 3 * 512
    assert roomy.states(half, third, fourth) == [RUNNING] * 3
    assert roomy.run(third).device_memory_mib == 37_683 - 4 * 512, "five such jobs have room"
    assert roomy.job(fifth).state is RUNNING, "three others are parked while one executes"
    assert roomy.job(ask(roomy, part(0.1))).state is QUEUED, "a fifth one would leave too little to the first"


def test_what_is_parked_needs_memory_of_the_node() -> None:
    d = site()
    first, second = ask(d, part(0.5)), ask(d, part(0.5))
    assert d.states(first, second) == [RUNNING, QUEUED], "two times 36,147 MiB do not fit into 65,536"
    said = explain(d.state, d.job(second), d.now, Random(0), policy_of("fifo")).blockers[0].detail
    assert "1 device is shared by sliced jobs that it may join; the most that is left of one is 0.5" in said
    assert "also for what is parked" in said


def test_memory_that_a_node_does_not_know_limits_nobody() -> None:
    d = Driver()
    d.step(NodeSeen("n1", "a", inventory(ONE, memory_mib=0)))
    jobs = [ask(d, part(0.5)), ask(d, part(0.5))]
    assert d.states(*jobs) == [RUNNING, RUNNING]
    assert isinstance(d.reply(Submitted("ann", "", part(memory=1))), FailedPrecondition)


def test_what_no_device_can_hold_is_refused_as_it_comes() -> None:
    d = site()
    assert d.job(ask(d, part(memory=37_683))).state is RUNNING
    answer = d.reply(Submitted("ann", "", part(memory=37_684)))
    assert isinstance(answer, FailedPrecondition)
    assert answer.reason == "NO_SUITABLE_NODE"
    assert "37684 MiB of a device" in str(answer)


def test_elements_of_an_array_share_devices() -> None:
    d = site(TWO)
    array = ask(d, with_changes(part(0.5, 1000), array=Array(5)))
    elements = sorted(d.state.elements_of[array])
    assert len(elements) == 4, "two on each device"
    d.start(*elements)
    assert sorted(places(d, *elements)) == [("n1", 0)] * 2 + [("n1", 1)] * 2


def test_a_trial_joins_before_it_preempts() -> None:
    d = site(TWO, policy="fitgpp")
    alone, sharing = ask(d, spec(1)), ask(d, part(0.5, 1000))
    trial = ask(d, part(0.5, 1000, trial=True))
    assert d.states(alone, sharing, trial) == [RUNNING] * 3
    assert places(d, trial) == places(d, sharing)


def test_a_trial_preempts_all_that_share_a_device_and_shares_it_then() -> None:
    d = site(policy="fitgpp")
    sharing = [ask(d, part(0.5, 1000)) for _ in range(2)]
    trial = ask(d, part(0.5, 1000, trial=True))
    assert d.states(*sharing, trial) == [STOPPING, STOPPING, QUEUED]
    assert d.job(ask(d, part(0.1, 1000))).state is QUEUED, "nobody joins those who are to leave"
    for job in sharing:
        d.exit(job, yielded=True)
    d.start(trial)
    assert d.run(trial).part_ppm == 500_000
    assert len(d.state.share_groups.rows) == 1
    assert [d.job(job).state for job in sharing].count(JobState.STARTING) == 1, "one has room beside the trial"


def test_nobody_joins_on_a_faulty_device_or_a_drained_node() -> None:
    d = site(ONE, ONE)
    first = ask(d, part(0.5, 1000))
    d.faulty({0: "XID 79"})
    second = ask(d, part(0.5, 1000))
    assert places(d, first, second) == [("n1", 0), ("n2", 0)]
    d.step(DrainRequested("n2", "", "op"))
    assert d.job(ask(d, part(0.5, 1000))).state is QUEUED


def test_a_job_does_not_join_where_it_failed_if_another_device_is_idle() -> None:
    d = site(ONE, ONE)
    job = ask(d, with_changes(part(0.5, 1000), retry=Retry(1)))
    other = ask(d, part(0.5, 1000))
    assert places(d, job, other) == [("n1", 0)] * 2
    d.exit(job, exit_code=1)
    d.step(after=5)
    d.start(job)
    assert places(d, job, other) == [("n2", 0), ("n1", 0)]


def test_a_part_that_joins_does_not_delay_the_head_of_a_backfilled_queue() -> None:
    """The head waits for both devices of the node. One that joins would hold a device for longer."""
    made = stages("fifo", PreemptionSettings(), True)
    d = Driver(made.policy, order=order_of(made))
    d.settles = False
    d.join("n1", TWO)
    first = ask(d, with_changes(part(0.5, 1000), time_limit_us=100_000_000, grace_us=0))
    head = ask(d, spec(2))
    late = ask(d, with_changes(part(0.5, 1000), time_limit_us=900_000_000, grace_us=0))
    soon = ask(d, with_changes(part(0.5, 1000), time_limit_us=50_000_000, grace_us=0))
    assert d.states(first, head, late, soon) == [RUNNING, QUEUED, QUEUED, RUNNING]


def test_explain_says_what_is_left() -> None:
    d = site()
    ask(d, part(0.75, 1000))
    waiting = ask(d, part(0.5, 1000))
    found = explain(d.state, d.job(waiting), d.now, Random(0), policy_of("fifo"))
    assert found.blockers[0].reason is Reason.NO_ROOM
    said = "1 device is shared by sliced jobs that it may join; the most that is left of one is 0.25"
    assert found.blockers[0].detail.endswith(said)


def test_a_job_joins_others_again_after_a_migration_that_was_given_up() -> None:
    """The migration has used the number of a launch that never began."""
    d = site(ONE, ONE)
    first, second = (ask(d, part(0.5, 4000)) for _ in range(2))
    assert d.step(MigrateRequested(second, ("n2",), ())).replies == (Accepted(second),)
    d.step(SuspendRequested(second))
    d.exit(second, yielded=True)
    assert d.state.operation_of == {}
    d.step(ResumeRequested(second))
    assert places(d, first, second) == [("n1", 0)] * 2
    assert d.job(second).run == 3


def test_the_story_says_with_whom() -> None:
    d = site()
    first = ask(d, part(0.25, 1000))
    taken = d.step(Submitted("ann", "", part(0.5, 1000)))
    assert kinds(taken, first + 1) == [EventKind.SUBMITTED, EventKind.PLACED]
    assert taken.log[-1].text == f"0.5 of device 0, sliced, with job {first}"


def test_least_attained_service_counts_a_fraction() -> None:
    d = site(TWO, policy="las")
    half, other, whole = ask(d, part(0.5, 1000)), ask(d, part(0.5, 1000)), ask(d, spec(1))
    d.step(after=100)
    assert attained_service(d.state, d.job(half)) == attained_service(d.state, d.job(other)) == 50_000_000
    assert attained_service(d.state, d.job(whole)) == 100_000_000
    d.exit(half, yielded=True)
    assert attained_service(d.state, d.job(half)) == 50_000_000


def test_fair_share_counts_parts_of_devices() -> None:
    d = site(TWO, policy="fair")
    ask(d, part(0.5, 1000), user="ann")
    ask(d, part(memory=9_420), user="ben")
    assert sum(held.devices for held in d.state.charged.values()) == 500_000 + 9_420 * WHOLE // 37_683
    d.exit(1)
    d.exit(2)
    assert not d.state.charged


# ---- what the core refuses -----------------------------------------------------------------------------------------------


def test_no_plan_promises_more_than_a_device() -> None:
    d = site()
    ask(d, part(0.6, 1000))
    job = ask(d, part(0.5, 1000))
    rows = (*group(d).rows, Row((RunKey(job, 1),), 500_000))
    refused = _refusal(d, Place(job, (Spot(1, (0,)),), share=Share(rows, open=True)))
    assert refused == "device 0 of node n1 would be promised in 1100000 ppm"


def test_no_plan_packs_jobs_of_several_users() -> None:
    d = site()
    ask(d, part(0.25, share=PACKED))
    job = ask(d, part(0.25, share=PACKED), user="ben")
    row = Row((*group(d).rows[0].runs, RunKey(job, 1)))
    refused = _refusal(d, Place(job, (Spot(1, (0,)),), share=Share((row,), open=True)))
    assert refused == f"jobs [1, {job}] of several users would be packed on a device"


def test_a_plan_that_says_nothing_of_sharing_opens_the_device_for_others() -> None:
    d = site(policy="fitgpp")
    blocker = ask(d, spec(1))
    job = ask(d, part(0.5, 1000))
    assert d.states(blocker, job) == [RUNNING, QUEUED]
    d.policy = lambda _state, _rng: iter(())  # type: ignore[assignment,return-value]
    d.exit(blocker)
    with d.state.supposing():
        assert enact(d.state, (Place(job, (Spot(1, (0,)),)),), d.now) is None
        assert group(d).open
        assert place(d.state, d.job(job)) is not None


def _refusal(driver: Driver, action: Place) -> str | None:
    with driver.state.supposing():
        return enact(driver.state, (action,), driver.now)


# ---- the index -----------------------------------------------------------------------------------------------------------


def test_the_index_finds_the_group_with_least_room_that_suffices() -> None:
    index, to = OpenGroups(), OpenTo(SLICED, "", False, False)
    for number, left in ((1, 500), (2, 200), (3, 900), (4, 200)):
        index.set_room(number, Room(to, 1000, left))
    assert list(index.with_room(to, lambda _memory: 201)) == [1, 3]
    assert list(index.with_room(to, lambda _memory: 200)) == [2, 4, 1, 3]
    index.set_room(2, Room(to, 1000, 950))
    index.set_room(1, None)
    assert list(index.with_room(to, lambda _memory: 1)) == [4, 3, 2]
    assert index.most_room(to) == (3, 950)
    for number in (2, 3, 4):
        index.set_room(number, None)
    assert index.snapshot() == OpenGroups().snapshot()
