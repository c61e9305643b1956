"""Pools that are called something else after a restart, and nodes that their pools leave out for a while."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler_service.core.allocation import guarantee_loss
from scheduler_service.core.engine import step
from scheduler_service.core.messages import NodeSeen, VcRequested
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Pin, Quota
from scheduler_service.core.state.state import State
from tests.policies.tenants import OPPORTUNISTIC, Tenants, inventory

FOURS = "four-2x2"
NODES = ("n1", "n2", "n3", "n4")


def restarted(before: Tenants, *plans: PoolPlan) -> Tenants:
    """The same cluster, with these pools; its invariants do not hold where cells have another name now."""
    after = Tenants({}, plans)
    after.now, after.runs, after.sent = before.now, before.runs, before.sent
    after.state = State(before.state.cluster, after.state.settings, before.state.order_of)
    tables = (table for table in before.state.tables() if table.name != "cluster")
    after.state.restore((table.name, key, row) for table in tables for key, row in table.rows.items())
    return after


def four(nodes: int) -> Tenants:
    return Tenants(dict.fromkeys(NODES[:nodes], "FOUR"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The jobs of which it is asked whether they are in cells of their own."""
    seen: list[int] = []
    real: Callable[..., bool] = guarantee_loss.in_own_cells

    def counted(state: State, job: Any, *where: Any) -> bool:
        seen.append(job.id)
        return real(state, job, *where)

    monkeypatch.setattr(guarantee_loss, "in_own_cells", counted)
    return seen


def test_only_where_cells_are_gone_are_runs_looked_at_and_only_its_own(asked: list[int]) -> None:
    before = four(4)
    before.vc("A", (FOURS, "node", 2))
    before.vc("B", (FOURS, "node", 2))
    mine, others = [before.ask("A", 4), before.ask("A", 4)], [before.ask("B", 4), before.ask("B", 4)]
    before.change("A", (FOURS, "node", 1))
    before.change("A", (FOURS, "node", 2))
    assert asked == [], "its pools are there"
    after = restarted(before, PoolPlan("named", NODES))
    assert after.state.guaranteed_runs == {"A": {(job, 1, 0) for job in mine}, "B": {(job, 1, 0) for job in others}}
    named = (Quota("named", "node", 2),)
    seen: list[list[int]] = []
    for vc in "AB":
        asked.clear()
        step(after.state, [VcRequested(vc, False, named)], after.now, Random(0), after.policy)
        after.state.adopt()
        seen.append(sorted(asked))
    assert seen == [mine, others]
    assert [after.guaranteed(job) for job in (*mine, *others)] == [True] * 4
    asked.clear()
    after.change("A", ("named", "node", 1))
    assert asked == []
    assert [after.guaranteed(job) for job in mine] == [True, False]


def test_of_a_pool_that_is_split_only_those_on_the_nodes_that_left_it_are_stranded() -> None:
    """And no cell of the others is counted as too many because of a cell that there is not any more."""
    before = four(2)
    before.vc("A", (FOURS, "node", 2))
    moved, stays = before.ask("A", 4), before.ask("A", 4)
    after = restarted(before, PoolPlan("named", ("n1",)))
    after.change("A", (FOURS, "node", 1))
    assert [after.guaranteed(job) for job in (moved, stays)] == [False, True]
    assert list(after.owned()) == [(FOURS, "node", 2)]


def test_who_runs_in_a_pin_of_the_old_name_stays_in_that_of_the_new_one() -> None:
    before = four(1)
    before.vc("A", pins=[("x", FOURS, "node", 1)])
    job = before.ask("A", 4, pin="x")
    after = restarted(before, PoolPlan("named", ("n1",)))
    taken = after.step(VcRequested("A", False, (), (Pin("x", "named", "node", 0),)))
    assert after.guaranteed(job)
    assert not taken.log, "it never lost its guarantee"
    assert list(after.owned()) == [("named", "node", 0)]


def test_a_pin_that_is_gone_with_its_pool_leaves_nobody_guaranteed() -> None:
    before = four(1)
    before.vc("A", pins=[("x", FOURS, "node", 1)])
    job = before.ask("A", 4, pin="x")
    after = restarted(before, PoolPlan("named", ("n1",)))
    after.step(VcRequested("A", False, (), ()))
    assert not after.guaranteed(job)
    assert not after.owned()


@pytest.mark.parametrize("owns", [0, 1])
def test_what_was_kept_in_cells_of_the_old_name_is_kept_no_more(owns: int) -> None:
    before = four(1)
    before.vc("A", (FOURS, "node", 1))
    before.vc("B")
    opportunistic_job = before.ask("B", 4, guarantee=OPPORTUNISTIC)
    coming = before.ask("A", 4)
    assert before.job(coming).reason is Reason.WAITING_FOR_VICTIMS
    after = restarted(before, PoolPlan("named", ("n1",)))
    after.change("A", *([("named", "node", 1)] if owns else []))
    assert bool(after.state.earmarks.rows) is bool(owns), "in cells of the new name it is kept anew"
    assert list(after.owned()) == ([("named", "node", 0)] if owns else [])
    after.leave(opportunistic_job)
    assert (after.job(coming).state is JobState.RUNNING) is bool(owns)


# ---- nodes that are left out ---------------------------------------------------------------------------------------------


class LeftOut(Tenants):
    """Three nodes of a pool, in racks of three. The first comes back, when nothing runs on it, with another name for a level:
    the others are unlike it, until they do."""

    def __init__(self, level: str, cells: int, *jobs: dict[str, Any]) -> None:
        """With jobs of `A`, which owns so many of the cells: one on each node but the first."""
        super().__init__(dict.fromkeys(NODES[:3], "FOUR"), [PoolPlan("p", NODES[:3], (("rack", 3),))])
        self.vc("A", ("p", level, cells))
        first = self.ask("A", 4)
        self.jobs = [self.ask("A", 4, **wants) for wants in jobs]
        self.end(first)
        self.back("n1")
        assert self.state.pools is not None
        assert len(self.state.pools.misfits) == 2

    def back(self, name: str) -> None:
        self.step(NodeSeen(name, "a", replace(inventory("FOUR"), levels=("bridge",))))

    def standing(self) -> list[bool]:
        return [self.guaranteed(job) for job in self.jobs]


def test_runs_on_nodes_that_are_left_out_keep_their_guarantee_and_their_cells() -> None:
    t = LeftOut("node", 3, {}, {})
    t.step(VcRequested("A", False, weight=2))
    assert t.standing() == [True, True]
    t.change("A", ("p", "node", 2))
    assert t.standing() == [True, True]
    t.end(t.jobs.pop(0))
    assert list(t.owned()) == [("p", "node", 2)], "it goes back with the last run in it"
    t.back("n2")
    assert t.standing() == [True]


def test_runs_on_nodes_that_are_left_out_keep_their_guarantee_where_other_cells_are_gone() -> None:
    t = LeftOut("node", 3, {}, {})
    rows = [(table.name, key, row) for table in t.state.tables() for key, row in table.rows.items() if table.name != "cluster"]
    other = PoolPlan("p", (*NODES[:2], "n5"), (("rack", 3),))
    t.state = State(t.state.cluster, t.state.settings._replace(pools=(other,)), t.state.order_of)
    t.state.restore(rows)
    t.change("A", ("p", "node", 2))
    assert t.standing() == [True, False], "n3 is of no named pool now, and n2 is left out of its own"
    assert list(t.owned()) == [("p", "node", 1)]


def test_cells_on_nodes_that_are_left_out_are_not_taken_for_idle_ones() -> None:
    t = LeftOut("node", 3, {"priority": 1}, {"priority": 9})
    third = t.ask("A", 4, priority=5)
    t.change("A", ("p", "node", 2))
    assert [*t.standing(), t.guaranteed(third)] == [False, True, True]
    t.change("A", ("p", "node", 1))
    assert [*t.standing(), t.guaranteed(third)] == [False, True, False]
    assert list(t.owned()) == [("p", "node", 2)]


def test_a_larger_cell_of_which_some_nodes_are_left_out_is_kept_for_the_runs_on_these() -> None:
    t = LeftOut("rack", 1, {}, {})
    here = t.ask("A", 4)
    t.end(here)
    assert t.standing() == [True, True]
    assert list(t.owned()) == [("p", "rack", 0)]
    t.end(*t.jobs)
    assert not t.owned()
