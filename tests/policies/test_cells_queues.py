"""A virtual cluster of several pools, or with pins, has a queue for each: who waits for one holds up nobody in another."""

from random import Random
from typing import Any

import pytest

from scheduler_service.core.messages import Submitted, UpdateRequested, VcRequested
from scheduler_service.core.model import Array, Dependency, DependencyKind, EventKind, JobState, Reason, RunKey
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Pin, VcPolicy
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.fitgpp.policy import PreemptionSettings
from tests.policies.tenants import OVERFLOW, Tenants, request
from tests.policies.test_cells_cost import cost

FOURS, TWOS = "four-2x2", "ct1-2"
BOTH = ((FOURS, "node", 1), (TWOS, "node", 1))


def site(policy: str = "fifo", fours: int = 1, pins: tuple[tuple[str, str, str, int], ...] = ()) -> Tenants:
    tenants = Tenants({**{f"f{i}": "FOUR" for i in range(fours)}, "t0": "CT1"})
    tenants.vc("A", *BOTH, pins=pins, policy=VcPolicy(policy))
    return tenants


def runs(tenants: Tenants, job: int) -> bool:
    return tenants.job(job).state is JobState.RUNNING and tenants.guaranteed(job)


def ahead(tenants: Tenants, job: int) -> list[int]:
    stage = stages("cells", PreemptionSettings())
    return list(explain(tenants.state, tenants.job(job), tenants.now, Random(0), stage).ahead_jobs)


@pytest.mark.parametrize("policy", ["fifo", "priority", "fitgpp"])
@pytest.mark.parametrize("trial", [False, True])
def test_who_waits_for_one_pool_holds_up_nobody_in_another(policy: str, trial: bool) -> None:
    t = site(policy)
    assert runs(t, t.ask("A", 4, pool=FOURS))
    waits, behind = t.ask("A", 4, pool=FOURS, trial=trial, priority=-1), t.ask("A", 1, pool=FOURS, priority=-1)
    assert ahead(t, behind) == [waits]
    assert runs(t, t.ask("A", 2, pool=TWOS))
    assert ahead(t, t.ask("A", 2, model="CT1")) == []
    assert t.job(behind).state is JobState.QUEUED


def test_who_waits_for_a_pin_holds_up_nobody_in_the_quota_and_the_other_way_round() -> None:
    t = site(fours=2, pins=(("mine", FOURS, "node", 1),))
    assert runs(t, t.ask("A", 4, pin="mine"))
    pinned = t.ask("A", 4, pin="mine")
    first = t.ask("A", 4)
    assert runs(t, first)
    waits = t.ask("A", 4)
    assert (ahead(t, pinned), ahead(t, waits)) == ([], [])
    t.end(first)
    assert runs(t, waits)
    assert t.waits(pinned) is Reason.BEYOND_QUOTA


def test_who_names_no_pool_stands_in_each_queue() -> None:
    """Behind who waits in one it may still start in the other, and what waits there comes behind it."""
    t = site()
    full = t.ask("A", 4, pool=FOURS), t.ask("A", 1)
    assert all(runs(t, job) for job in full)
    t.ask("A", 4, pool=FOURS)
    small, wide = t.ask("A", 1), t.ask("A", 2)
    assert (runs(t, small), t.waits(wide)) == (True, Reason.BEYOND_QUOTA)
    late = t.ask("A", 2, pool=TWOS)
    assert ahead(t, late) == [wide]
    t.end(small, full[1])
    assert (runs(t, wide), t.job(late).state) == (True, JobState.QUEUED)


def test_who_could_never_have_one_of_its_pools_holds_up_nobody_there() -> None:
    t = site()
    assert runs(t, t.ask("A", 4))
    assert t.waits(t.ask("A", 4)) is Reason.BEYOND_QUOTA
    assert runs(t, t.ask("A", 2))


def test_who_could_never_have_the_pool_that_is_left_to_it_holds_up_nobody_there() -> None:
    """It may have another, for which somebody before it waits."""
    t = site()
    assert runs(t, t.ask("A", 4, pool=FOURS))
    first, too_wide = t.ask("A", 4, pool=FOURS), t.ask("A", 3)
    small = t.ask("A", 2, pool=TWOS)
    assert (ahead(t, too_wide), ahead(t, small)) == ([first], [])
    assert runs(t, small)


def test_who_waits_for_opportunistic_jobs_to_leave_is_not_among_the_trials_in_flight() -> None:
    t = Tenants({"f1": "FOUR", "f2": "FOUR"})
    t.vc("A", (FOURS, "node", 1), policy=VcPolicy("fitgpp", trials_in_flight=1))
    t.vc("B", (FOURS, "node", 1))
    opportunistic_jobs = [t.ask("B", 4, guarantee=Guarantee.OPPORTUNISTIC) for _ in range(2)]
    other = t.ask("A", 4)
    assert t.waits(other) is Reason.WAITING_FOR_VICTIMS
    trial = t.ask("A", 4, trial=True)
    assert t.waits(trial) is Reason.WAITING_FOR_VICTIMS, "it takes what is kept for the best-effort job"
    (leaving,) = [job for job in opportunistic_jobs if t.job(job).state is JobState.STOPPING]
    left = t.exit(leaving, yielded=True)
    assert not [event for event in left.log if event.kind is EventKind.PREEMPTED]
    assert (t.where(trial).id, t.job(other).preempted_for_trial) == (t.runs[RunKey(leaving, 1, 0)].node, 0)


def test_nothing_is_left_of_why_it_waited_before_it_waits_for_another() -> None:
    t = site()
    first, job = t.ask("A", 4, pool=FOURS), t.ask("A", 4, pool=FOURS)
    assert (t.waits(job), bool(t.job(job).detail)) == (Reason.BEYOND_QUOTA, True)
    t.step(UpdateRequested(job, dependencies=(Dependency(first, DependencyKind.AFTER_ANY),)))
    assert (t.waits(job), t.job(job).cause_job, t.job(job).detail) == (Reason.DEPENDENCY, first, "")


def test_by_priority_others_leave_in_the_pool_that_nobody_waits_for() -> None:
    t = site("priority")
    full, low = t.ask("A", 4, priority=9), t.ask("A", 2)
    waits = t.ask("A", 4, priority=5)
    high = t.ask("A", 2, priority=1)
    assert t.waits(waits) is Reason.BEYOND_QUOTA
    assert t.waits(high) is Reason.WAITING_FOR_VICTIMS
    assert (runs(t, full), t.job(low).state) == (True, JobState.STOPPING)
    t.leave(low)
    assert runs(t, high)


def named_pools(policy: str) -> Tenants:
    """The nodes of a pool that the site names are counted within it, so that both of these are the first."""
    t = Tenants({"f0": "FOUR", "t0": "CT1"}, [PoolPlan("fours", ("f0",), ()), PoolPlan("apart", ("t0",), ())])
    t.vc("A", ("fours", "node", 1), ("apart", "node", 1), policy=VcPolicy(policy))
    return t


@pytest.mark.parametrize("policy", ["priority", "fitgpp", "lrtp", "rand"])
@pytest.mark.parametrize(("named", "size"), [("fours", 2), ("", 3)])
def test_those_leave_whose_going_makes_room_in_their_own_pool(policy: str, named: str, size: int) -> None:
    t = named_pools(policy)
    other, full = t.ask("A", 2, pool="apart"), t.ask("A", 4, pool="fours")
    high = t.ask("A", size, pool=named, trial=True, priority=1)
    assert t.waits(high) is Reason.WAITING_FOR_VICTIMS
    assert (runs(t, other), t.job(full).state) == (True, JobState.STOPPING)
    t.leave(full)
    assert runs(t, high)


def test_nobody_leaves_whose_going_makes_room_in_another_pool() -> None:
    t = named_pools("priority")
    other, full = t.ask("A", 2, pool="apart"), t.ask("A", 4, pool="fours", priority=5)
    waits = t.ask("A", 2, pool="fours", priority=1)
    assert t.waits(waits) is Reason.BEYOND_QUOTA
    assert (runs(t, other), runs(t, full)) == (True, True)


def test_who_overflowed_is_promoted_where_nobody_waits() -> None:
    t = Tenants({"f0": "FOUR", "t0": "CT1", "t1": "CT1"})
    t.vc("A", *BOTH)
    full = t.ask("A", 4, pool=FOURS), t.ask("A", 2, pool=TWOS)
    overflowed = t.ask("A", 2, pool=TWOS, guarantee=OVERFLOW)
    t.ask("A", 4, pool=FOURS)
    assert not t.guaranteed(overflowed)
    t.end(full[1])
    assert t.guaranteed(overflowed)


def test_who_overflowed_is_not_promoted_before_one_that_waits_for_the_same() -> None:
    t = Tenants({"f0": "FOUR", "f1": "FOUR", "t0": "CT1"})
    t.vc("A", *BOTH)
    full = [t.ask("A", 2, pool=FOURS), t.ask("A", 2, pool=FOURS)]
    overflowed = t.ask("A", 2, pool=FOURS, guarantee=OVERFLOW)
    waits = t.ask("A", 4, pool=FOURS)
    t.end(full[0])
    assert (t.guaranteed(overflowed), t.job(waits).state) == (False, JobState.QUEUED)


def test_who_lost_its_cells_has_them_again_whoever_waits_for_others() -> None:
    """Before who came later for the same, and though somebody of a higher priority waits in the other pool."""
    t = site("priority")
    t.ask("A", 4, pool=FOURS, priority=9)
    lost = t.ask("A", 2, pool=TWOS)
    t.change("A", (FOURS, "node", 1))
    waits = t.ask("A", 4, pool=FOURS, priority=5)
    assert not t.guaranteed(lost)
    later = t.reply(Submitted("ann", "", request("A", 2, model="CT1", guarantee=OVERFLOW))).job_id
    t.change("A", *BOTH)
    assert (t.guaranteed(lost), t.job(lost).state) == (True, JobState.RUNNING)
    assert [t.job(job).state for job in (waits, later)] == [JobState.QUEUED] * 2


def test_queues_follow_a_pin_that_is_added_while_somebody_waits() -> None:
    t = site(fours=2)
    t.ask("A", 4, pool=FOURS)
    waits = t.ask("A", 4, pool=FOURS)
    t.step(VcRequested("A", False, pins=(Pin("mine", FOURS, "node", t.node("f1").id),)))
    t.state = t.state.rebuild()
    assert runs(t, t.ask("A", 4, pin="mine"))
    assert t.waits(waits) is Reason.BEYOND_QUOTA


@pytest.mark.parametrize("guarantee", [Guarantee.GUARANTEED, OVERFLOW])
def test_all_elements_of_an_array_start_that_have_room(guarantee: Guarantee) -> None:
    t = site()
    spec = with_changes(request("A", 1, pool=FOURS, guarantee=guarantee), array=Array(6))
    array = t.reply(Submitted("ann", "", spec)).job_id
    elements = [job for job in t.state.jobs.rows.values() if job.array_job == array]
    assert [job.state for job in elements] == [JobState.STARTING] * 4
    t.begin(*(job.id for job in elements))
    assert runs(t, elements[0].id)
    t.end(elements[0].id)
    assert len(t.state.elements_of[array]) == 4


# ---- cost --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wants", [{}, {"pool": FOURS}, {"pin": "mine"}])
def test_it_costs_the_same_however_many_wait(wants: dict[str, Any]) -> None:
    def with_waiting(count: int) -> int:
        t = site(fours=2, pins=(("mine", FOURS, "node", 1),))
        for names in ({"pool": FOURS}, {"pool": TWOS}, {"pin": "mine"}):
            t.ask("A", 2, **names)
            t.ask("A", 2, **names)
        for _ in range(count):
            t.ask("A", 2, **wants)
        return cost(t, Submitted("ann", "", request("A", 2, **wants)))

    assert with_waiting(100) <= with_waiting(4) + 20


def test_no_more_than_so_many_are_looked_at_that_may_have_other_cells() -> None:
    """Each may have what nobody waits for, if it were smaller."""

    def with_waiting(count: int) -> int:
        t = Tenants({"f0": "FOUR", "t0": "CT1"})
        t.settles = False
        t.vc("A", (FOURS, "node", 1), (TWOS, "device", 2))
        t.ask("A", 4)
        for _ in range(count):
            t.ask("A", 4)
        return cost(t, Submitted("ann", "", request("A", 4)))

    assert with_waiting(300) <= with_waiting(150) + 20


@pytest.mark.parametrize(("policy", "before"), [("fifo", 1), ("fitgpp", 0)])
def test_of_those_that_wait_for_idle_cells_trials_are_first_where_they_are_in_its_own(policy: str, before: int) -> None:
    t = site(policy)
    for cell, pool in ((4, FOURS), (2, TWOS)):
        t.ask("A", cell, pool=pool)
    job = t.ask("A", 2, guarantee=Guarantee.OPPORTUNISTIC)
    trial = t.ask("A", 2, guarantee=Guarantee.OPPORTUNISTIC, trial=True)
    assert ahead(t, trial) == [job][:before]
    assert ahead(t, job) == [trial][before:]
    found = explain(t.state, t.job(job), t.now, Random(0), stages("cells", PreemptionSettings()))
    assert [blocker.reason for blocker in found.blockers] == [Reason.NO_ROOM], "nobody is held up by others for idle cells"
