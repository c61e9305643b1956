"""Opportunistic jobs of one virtual cluster among themselves: who goes for whom, and what they keep against whom."""

from types import ModuleType

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.messages import CancelRequested, FaultsSeen, Preempt, Reclaim
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.state.journal import Journal
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived import opportunistic, opportunistic_victims, victims_in_vc
from tests.policies.tenants import OPPORTUNISTIC, Tenants

POOL = "four-2x2"


def site(*nodes: str, policy: str = "fitgpp") -> Tenants:
    tenants = Tenants(dict.fromkeys(nodes, "FOUR"))
    tenants.vc("A", policy=VcPolicy(policy))
    tenants.vc("B", (POOL, "node", len(nodes)))
    return tenants


def opportunistic_job(tenants: Tenants, vc: str, *sizes: int, **wants: object) -> int:
    return tenants.ask(vc, *sizes, guarantee=OPPORTUNISTIC, **wants)


def leaving(tenants: Tenants, *jobs: int) -> list[int]:
    return [job for job in jobs if tenants.job(job).state is JobState.STOPPING]


def test_an_opportunistic_trial_has_the_cheapest_of_its_own_opportunistic_jobs_preempted() -> None:
    tenants = site("one", "two")
    long, short = opportunistic_job(tenants, "A", 2, grace=25), opportunistic_job(tenants, "A", 2, grace=5)
    others = opportunistic_job(tenants, "B", 4, grace=0)
    trial = opportunistic_job(tenants, "A", 2, trial=True)
    assert leaving(tenants, long, short, others) == [short]
    assert tenants.waits(trial) is Reason.WAITING_FOR_VICTIMS
    places = tenants.at(short)
    tenants.state = tenants.state.rebuild()
    tenants.leave(short)
    assert tenants.at(trial) == places
    assert not tenants.guaranteed(trial)
    assert tenants.job(short).preempted_for_trial == 1
    assert tenants.state.kept_for_opportunistic == {}


def test_lower_priority_goes_first_whatever_the_score() -> None:
    tenants = site("one")
    low = opportunistic_job(tenants, "A", 2, grace=25)
    high = opportunistic_job(tenants, "A", 2, grace=0, priority=1)
    trial = opportunistic_job(tenants, "A", 1, trial=True, priority=1)
    assert leaving(tenants, low, high) == [low]
    assert tenants.waits(opportunistic_job(tenants, "A", 2, trial=True)) is Reason.NOTHING_TO_PREEMPT, (
        "whom it may have go is going"
    )
    tenants.leave(low)
    assert len(tenants.at(trial)) == 1


@pytest.mark.parametrize("policy", ["lrtp", "rand"])
def test_several_go_where_one_is_not_enough(policy: str) -> None:
    tenants = site("one", policy=policy)
    small = [opportunistic_job(tenants, "A", 1) for _ in range(4)]
    trial = opportunistic_job(tenants, "A", 3, trial=True)
    assert len(leaving(tenants, *small)) == 3
    tenants.leave(*leaving(tenants, *small))
    assert tenants.job(trial).state is JobState.RUNNING


def test_by_priority_any_job_has_lower_opportunistic_jobs_leave_and_the_queue_goes_by_it() -> None:
    tenants = site("one", policy="priority")
    low, lower = opportunistic_job(tenants, "A", 2, priority=1), opportunistic_job(tenants, "A", 2)
    equal, high = opportunistic_job(tenants, "A", 2), opportunistic_job(tenants, "A", 2, priority=2)
    assert leaving(tenants, low, lower) == [lower]
    tenants.leave(lower)
    assert tenants.job(high).state is JobState.RUNNING
    assert tenants.waits(equal) in (Reason.NONE, Reason.NO_ROOM)
    assert tenants.waits(lower) is Reason.RECLAIMED
    assert tenants.job(lower).preempted_for_trial == 0


def test_who_owns_the_cells_takes_what_is_kept_for_a_opportunistic_job() -> None:
    tenants = site("one")
    first, second = opportunistic_job(tenants, "A", 2, grace=5), opportunistic_job(tenants, "A", 2, grace=25)
    trial = opportunistic_job(tenants, "A", 2, trial=True)
    assert leaving(tenants, first, second) == [first]
    owner = tenants.ask("B", 4)
    assert tenants.earmark(trial) is None
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    assert leaving(tenants, first, second) == [first, second]
    tenants.leave(first, second)
    assert tenants.at(owner) == ["one[0..3]"]
    assert tenants.waits(trial) is Reason.NOTHING_TO_PREEMPT


def test_what_is_kept_for_a_opportunistic_job_is_nobody_elses_who_has_no_right_to_it() -> None:
    tenants = site("one")
    victim = opportunistic_job(tenants, "A", 4, grace=5)
    trial = opportunistic_job(tenants, "A", 2, trial=True)
    assert leaving(tenants, victim) == [victim]
    stranger = opportunistic_job(tenants, "B", 3)
    tenants.leave(victim)
    assert tenants.job(trial).state is JobState.RUNNING
    assert tenants.waits(stranger) is Reason.NO_ROOM


def test_a_gang_of_opportunistic_jobs_has_two_nodes_cleared_and_loses_both_at_once() -> None:
    tenants = site("one", "two")
    wide = opportunistic_job(tenants, "A", 4, 4, grace=5)
    trial = opportunistic_job(tenants, "A", 3, 3, trial=True)
    assert leaving(tenants, wide) == [wide]
    assert len(tenants.state.earmarks.rows) == 2
    owner = tenants.ask("B", 4, 4)
    assert {row.job_id for row in tenants.state.earmarks.rows.values()} == {owner}
    tenants.leave(wide)
    assert tenants.guaranteed(owner)
    assert tenants.job(trial).state is JobState.QUEUED


def test_a_fault_or_a_cancel_gives_up_what_was_kept() -> None:
    tenants = site("one")
    victim = opportunistic_job(tenants, "A", 4, grace=5)
    trial = opportunistic_job(tenants, "A", 4, trial=True)
    tenants.step(FaultsSeen("one", "a", ((1, "XID 79"),)))
    assert tenants.earmark(trial) is None
    tenants.leave(victim)
    assert tenants.waits(trial) is Reason.NOTHING_TO_PREEMPT
    tenants.step(FaultsSeen("one", "a", ()))
    assert tenants.job(trial).state is JobState.STARTING  # before the victim, which was there first


def test_it_is_checked_that_a_opportunistic_job_has_no_guaranteed_or_foreign_run_go() -> None:
    tenants = site("one", "two", policy="fifo")
    owned, foreign = tenants.ask("B", 4), opportunistic_job(tenants, "B", 4)
    trial = opportunistic_job(tenants, "A", 1, trial=True)
    mine = opportunistic_job(tenants, "B", 1, trial=True)
    refusals = [
        enact(tenants.state, plan, tenants.now)
        for plan in (
            (Preempt(owned, mine, 1, None),),
            (Preempt(foreign, trial, 1, None),),
            (Reclaim(foreign, trial),),
            (Reclaim(owned, mine),),
        )
    ]
    assert refusals == [
        f"job {owned} is guaranteed, and job {mine} may have opportunistic runs stopped alone",
        f"job {foreign} is another virtual cluster's",
        f"job {trial} has no right to what job {foreign} holds",
        f"job {owned} is guaranteed, and job {mine} may have opportunistic runs stopped alone",
    ]


def test_a_small_one_is_found_behind_many_of_a_kind_that_fits_nowhere() -> None:
    tenants = site("one", "two")
    tenants.ask("B", 3)
    tenants.ask("B", 4)
    large = [opportunistic_job(tenants, "A", 4) for _ in range(20)]
    small = opportunistic_job(tenants, "A", 1)
    assert tenants.at(small) == ["one[3]"]
    assert {tenants.job(job).state for job in large} == {JobState.QUEUED}
    assert tenants.waits(large[0]) is Reason.NO_ROOM


# ---- cost --------------------------------------------------------------------------------------------------------------


def counted(patch: pytest.MonkeyPatch, module: ModuleType | type, name: str) -> list[object]:
    """Grows by one with each call."""
    calls: list[object] = []
    called = getattr(module, name)

    def noted(*arguments: object) -> object:
        calls.append(arguments)
        return called(*arguments)

    patch.setattr(module, name, noted)
    return calls


@pytest.mark.parametrize("policy", ["fitgpp", "lrtp", "priority"])
def test_who_waits_in_vain_looks_once_for_all_of_its_kind(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many opportunistic jobs there are, and however many jobs ask for the same: a whole node, of which there is none
    without a faulty device. There are enough for each of its tasks, so that it has to look."""
    nodes, broken = ("one", "two", "three"), ((3, "Xid 79"),)
    tenants = site(*nodes, policy=policy)
    tenants.step(*(FaultsSeen(node, "a", broken) for node in nodes))
    tenants.ask("B", 1)
    small = [opportunistic_job(tenants, "A", 1) for _ in range(8)]
    wide = [opportunistic_job(tenants, "A", 2, 2, within="node", trial=True, priority=1) for _ in range(4)]
    tenants.settles, tenants.thorough = False, True
    looks = counted(monkeypatch, opportunistic_victims, "find_idle")
    tenants.step(FaultsSeen("one", "a", broken), CancelRequested(wide.pop()))
    assert len(looks) == 2 * 1  # a step is taken twice
    opportunistic_job(tenants, "A", 2, 2, within="node", trial=True, priority=2)  # it may have more of them leave
    assert len(looks) == 2 * (1 + 2)
    assert leaving(tenants, *small) == []
    assert tenants.job(opportunistic_job(tenants, "A", 3, 3, trial=True, priority=1)).reason is Reason.WAITING_FOR_VICTIMS


@pytest.mark.parametrize("policy", ["fitgpp", "lrtp", "priority"])
@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 3, 3, 1)])
def test_nobody_looks_for_more_than_there_is(sizes: tuple[int, ...], policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many leaves there are on each node tells that it is in vain; nothing need be supposed."""
    tenants = site("one", "two", "three", policy=policy)
    tenants.ask("B", 2)
    small = [opportunistic_job(tenants, "A", 1) for _ in range(9)]
    tenants.settles, tenants.thorough = False, True
    looks = counted(monkeypatch, opportunistic_victims, "find_idle")
    supposed = counted(monkeypatch, State, "supposing")
    wide = opportunistic_job(tenants, "A", *sizes, trial=True, priority=1)
    tenants.end(small.pop())
    assert tenants.waits(wide) is Reason.NOTHING_TO_PREEMPT
    assert looks == supposed == []
    assert tenants.waits(opportunistic_job(tenants, "A", 4, 4, trial=True, priority=1)) is Reason.WAITING_FOR_VICTIMS
    assert looks
    assert supposed


@pytest.mark.parametrize("policy", ["fitgpp", "lrtp", "priority"])
def test_the_end_of_those_alone_is_supposed_who_are_preempted(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node is cleared; the rows that are changed on the way are as many in a cluster of any size."""
    puts = counted(monkeypatch, Journal, "put")

    def of_nodes(count: int) -> int:
        tenants = site(*(f"node-{i:02}" for i in range(count)), policy=policy)
        tenants.thorough = True
        small = [opportunistic_job(tenants, "A", 1) for _ in range(4 * count)]
        before = len(puts)
        trial = opportunistic_job(tenants, "A", 4, trial=True, priority=1)
        assert tenants.waits(trial) is Reason.WAITING_FOR_VICTIMS
        assert len(leaving(tenants, *small)) == 4
        return len(puts) - before

    assert of_nodes(9) == of_nodes(3)


@pytest.mark.parametrize("policy", ["fitgpp", "priority"])
def test_so_does_who_waits_in_its_own_cells(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", (POOL, "node", 2), policy=VcPolicy(policy))
    tenants.ask("A", 1, priority=2)
    small = [tenants.ask("A", 1) for _ in range(7)]
    wide, other = (tenants.ask("A", 4, 4, trial=True, priority=1) for _ in range(2))
    tenants.settles, tenants.thorough = False, True
    looks = counted(monkeypatch, victims_in_vc, "plan_in_cells")
    tenants.step(FaultsSeen("one", "a", ()), CancelRequested(other))
    assert len(looks) == 2 * 1
    assert leaving(tenants, *small) == []
    assert tenants.waits(wide) is Reason.NOTHING_TO_PREEMPT


def test_of_many_kinds_so_many_are_tried_and_of_many_jobs_so_many_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait; and the first of them is told that there is no room."""
    tenants = site("one", policy="fifo")
    tenants.ask("B", 4)
    tenants.settles, tenants.thorough = False, True
    tries = counted(monkeypatch, opportunistic, "place_opportunistic")
    kinds = [opportunistic_job(tenants, "A", 1, cpu=100 + i) for i in range(20)]
    tries.clear()
    tenants.step(CancelRequested(kinds.pop()))
    assert len(tries) == 2 * opportunistic.LOOKED_AT  # a step is taken twice
    tenants.step(*(CancelRequested(job) for job in kinds))
    alike = [opportunistic_job(tenants, "A", 1) for _ in range(140)]
    tries.clear()
    tenants.step(CancelRequested(alike.pop()))
    assert len(tries) == 2 * 1
    assert tenants.waits(alike[0]) is Reason.NO_ROOM
