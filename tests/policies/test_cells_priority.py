"""Inside a virtual cluster: who leaves for whom, who merely loses its guarantee, and who what is kept for it."""

import pytest

from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import SECOND
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants

PRIORITY = VcPolicy("priority")


def fours(count: int, *above: tuple[str, int], **settings: object) -> Tenants:
    """Nodes of four devices, n1, n2, ..., in one pool."""
    names = tuple(f"n{number}" for number in range(1, count + 1))
    return Tenants(dict.fromkeys(names, "FOUR"), [PoolPlan("p", names, above)], **settings)


def leaving(tenants: Tenants, *jobs: int) -> list[int]:
    return [job for job in jobs if tenants.job(job).state is JobState.STOPPING]


# ---- the lazy ----------------------------------------------------------------------------------------------------------


def test_the_lazy_lose_no_guarantee_where_that_is_of_no_use() -> None:
    """The two are in node cells that happen to be neighbours: as a rack, these are there only as long as they are bound."""
    t = fours(4, ("rack", 2))
    t.vc("A", ("p", "rack", 1), ("p", "node", 2), policy=PRIORITY)
    t.ask("A", 4, 4, within="rack", priority=9)
    lazy = [t.ask("A", 4, lazy=True), t.ask("A", 4, lazy=True)]
    assert [t.guaranteed(job) for job in lazy] == [True, True]
    high = t.ask("A", 4, 4, within="rack", priority=1)
    assert leaving(t, *lazy) == lazy  # it has to be their devices: so they go, as others would
    assert [t.guaranteed(job) for job in lazy] == [True, True]
    t.leave(*lazy)
    assert t.guaranteed(high)


def test_one_who_has_to_leave_anyhow_has_the_grace_period_of_one_who_was_guaranteed() -> None:
    t = fours(1, reclaim_grace_us=30 * SECOND)
    t.vc("A", pins=[("pin", "p", "node", 0)], policy=PRIORITY)
    lazy = t.ask("A", 4, lazy=True, pin="pin", grace=100)
    high = t.ask("A", 2, pin="pin", priority=1)
    assert t.run(lazy).stop_grace_us == 100 * SECOND
    assert t.waits(high) is Reason.WAITING_FOR_VICTIMS


@pytest.mark.parametrize("lazy_first", [True, False])
def test_who_is_lazy_stays_beside_one_who_is_not(lazy_first: bool) -> None:
    """A third node is idle: for one of the two tasks, and so one of the two victims may stay where it is."""
    t = fours(3)
    t.vc("A", ("p", "node", 2), policy=PRIORITY)
    first, second = t.ask("A", 4, lazy=lazy_first), t.ask("A", 4, lazy=not lazy_first)
    lazy, other = (first, second) if lazy_first else (second, first)
    place = t.at(lazy)
    high = t.ask("A", 4, 4, priority=1)
    assert leaving(t, lazy, other) == [other]
    assert not t.guaranteed(lazy)
    t.leave(other)
    assert t.guaranteed(high)
    assert t.at(lazy) == place


# ---- what is kept for others ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lazy", [True, False])
def test_the_highest_takes_over_what_is_kept_for_one_who_is_not(lazy: bool) -> None:
    """Nobody is started only to be told to leave, and whoever leaves already is whom the highest waits for."""
    t = fours(1)
    t.vc("A", ("p", "node", 1), policy=PRIORITY)
    low, middle, high = t.ask("A", 4), t.ask("A", 4, priority=1, lazy=lazy), t.ask("A", 4, priority=2)
    assert t.earmark(middle) is None
    assert t.waits(middle) is Reason.NOTHING_TO_PREEMPT
    assert t.job(middle).detail.endswith(f": job {low} is stopping already")
    kept = t.earmark(high)
    assert kept is not None
    assert kept.victims == (t.run(low).key,)
    t.leave(low)
    assert t.guaranteed(high)
    assert t.job(middle).run == 0


@pytest.mark.parametrize("policy", ["priority", "fifo"])
def test_equals_keep_what_is_theirs(policy: str) -> None:
    t = fours(1)
    t.vc("A", ("p", "node", 1), policy=VcPolicy(policy))
    t.vc("B")
    opportunistic_job = t.ask("B", 4, guarantee=OPPORTUNISTIC)
    first = t.ask("A", 4, priority=1)
    second = t.ask("A", 4, priority=1 if policy == "priority" else 2)
    assert t.earmark(first) is not None
    assert t.waits(second) is Reason.BEYOND_QUOTA
    t.leave(opportunistic_job)
    assert t.guaranteed(first)


def test_a_gang_loses_all_that_is_kept_for_it_where_a_part_is_taken() -> None:
    t = fours(2)
    t.vc("A", ("p", "node", 2), policy=PRIORITY)
    t.vc("B")
    opportunistic_jobs = [t.ask("B", 4, guarantee=OPPORTUNISTIC) for _ in range(2)]
    gang = t.ask("A", 4, 4, priority=1)
    high = t.ask("A", 4, priority=2)
    assert leaving(t, *opportunistic_jobs) == opportunistic_jobs
    assert t.earmark(gang) is None
    assert list(t.owned().values()) == ["A"]  # the other node is anybody's again
    t.leave(*opportunistic_jobs)
    assert t.guaranteed(high)
    assert t.job(gang).run == 0


def test_of_those_for_whom_something_is_kept_only_whose_cells_are_needed_lose_it() -> None:
    t = fours(3)
    t.vc("A", ("p", "node", 3), policy=PRIORITY)
    lows = [t.ask("A", 4) for _ in range(2)]
    t.ask("A", 4, priority=9)
    middles = [t.ask("A", 4, priority=2), t.ask("A", 4, priority=1)]
    high = t.ask("A", 4, priority=3)
    assert [t.earmark(job) is not None for job in (*middles, high)] == [True, False, True]
    t.leave(*lows)
    assert [t.job(job).state for job in (*middles, high)] == [JobState.RUNNING, JobState.QUEUED, JobState.RUNNING]


def test_to_take_what_is_kept_comes_before_having_a_run_leave() -> None:
    """And who loses it has the run leave, if that is of lower priority than it: all start after one grace period."""
    t = fours(2)
    t.vc("A", ("p", "node", 2), policy=PRIORITY)
    lows = [t.ask("A", 4), t.ask("A", 4)]
    middle = t.ask("A", 4, priority=1)
    [first] = leaving(t, *lows)
    high = t.ask("A", 4, priority=2)
    assert leaving(t, *lows) == lows
    t.leave(first)
    assert t.guaranteed(high)
    t.leave(*leaving(t, *lows))
    assert t.guaranteed(middle)


def test_what_is_kept_and_a_run_are_taken_together() -> None:
    t = fours(2)
    t.vc("A", ("p", "node", 2), policy=PRIORITY)
    lows = [t.ask("A", 4), t.ask("A", 4)]
    middle = t.ask("A", 4, priority=1)
    high = t.ask("A", 4, 4, priority=2)
    assert leaving(t, *lows) == lows
    assert t.earmark(middle) is None
    t.leave(*lows)
    assert t.guaranteed(high)
    assert t.job(middle).run == 0


def test_cells_that_are_idle_now_are_taken_at_once_instead() -> None:
    """The quota was in use up to what is kept; given back, it is good for a node that nobody is on any more."""
    t = fours(2)
    t.vc("A", ("p", "node", 1), policy=PRIORITY)
    t.vc("B")
    opportunistic_jobs = [t.ask("B", 4, guarantee=OPPORTUNISTIC) for _ in range(2)]
    middle = t.ask("A", 4, priority=1)
    [told] = leaving(t, *opportunistic_jobs)
    t.end(*(opportunistic_job for opportunistic_job in opportunistic_jobs if opportunistic_job != told))
    high = t.ask("A", 4, priority=2)
    assert t.guaranteed(high)
    assert t.waits(middle) is Reason.BEYOND_QUOTA
    t.leave(told)
    assert t.job(told).state is JobState.RUNNING


@pytest.mark.parametrize("policy", ["fitgpp", "lrtp", "rand"])
def test_a_trial_takes_over_what_is_kept_for_a_best_effort_job(policy: str) -> None:
    """Which is not preempted by that, as it was not started."""
    t = fours(1)
    t.vc("A", ("p", "node", 1), policy=VcPolicy(policy))
    t.vc("B")
    opportunistic_job = t.ask("B", 4, guarantee=OPPORTUNISTIC)
    waits, above = t.ask("A", 2), t.ask("A", 2, priority=1)
    trial = t.ask("A", 2, trial=True)
    kept = t.earmark(trial)
    assert kept is not None
    assert kept.victims == (t.run(opportunistic_job).key,)
    assert [t.earmark(job) is not None for job in (waits, above)] == [False, True]
    t.leave(opportunistic_job)
    assert t.guaranteed(trial)
    assert (t.job(waits).run, t.job(waits).preempted_for_trial) == (0, 0)
    assert t.guaranteed(above)


@pytest.mark.parametrize("policy", ["fitgpp", "lrtp", "rand"])
def test_a_trial_takes_what_is_kept_and_a_run_together(policy: str) -> None:
    t = fours(1)
    t.vc("A", ("p", "switch", 2), policy=VcPolicy(policy))
    t.vc("B")
    opportunistic_job = t.ask("B", 4, guarantee=OPPORTUNISTIC)
    first = t.ask("A", 2)
    t.leave(opportunistic_job)
    again = t.ask("B", 2, guarantee=OPPORTUNISTIC)
    waits = t.ask("A", 2)
    trial = t.ask("A", 2, 2, trial=True)
    assert leaving(t, first, again) == [first, again]
    assert t.earmark(waits) is None
    t.leave(first, again)
    assert t.guaranteed(trial)
    assert (t.job(first).preempted_for_trial, t.job(waits).run) == (1, 0)


# ---- whose right it is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "trial"), [("priority", False), ("fitgpp", True), ("lrtp", True)])
def test_who_has_no_right_to_neighbours_has_nobody_leave_who_happen_to_be(policy: str, trial: bool) -> None:
    """Two nodes are no rack, also where they are in one."""
    t = fours(4, ("rack", 2))
    t.vc("A", ("p", "node", 2), policy=VcPolicy(policy))
    t.vc("B")
    runs = [t.ask("A", 4), t.ask("A", 4)]
    t.ask("B", 4, 4, guarantee=OPPORTUNISTIC)
    assert [t.at(job) for job in runs] == [["n1[0..3]"], ["n2[0..3]"]]
    wide = t.ask("A", 4, 4, within="rack", guarantee=OVERFLOW, priority=1, trial=trial)
    assert leaving(t, *runs) == []
    assert t.waits(wide) is Reason.NO_ROOM
