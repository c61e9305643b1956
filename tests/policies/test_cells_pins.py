"""Pins that move, go and come back, and what becomes of those who run in them."""

from random import Random

import pytest

from scheduler_service.core.engine import step
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import DrainRequested, FaultsSeen, UndrainRequested, VcChanged, VcRequested
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Pin
from tests.policies.tenants import Tenants


def site(*names: str) -> Tenants:
    return Tenants(dict.fromkeys(names, "FOUR"), [PoolPlan("p", names)])


def pin(tenants: Tenants, *pins: tuple[str, str, int]) -> object:
    """What A is told that pins these cells of the pool and no others."""
    return tenants.reply(VcRequested("A", False, pins=tuple(Pin(name, "p", level, cell) for name, level, cell in pins)))


def test_whose_pin_moves_is_not_promoted_into_the_quota_and_nobody_tries_to() -> None:
    """It asked for the pin: its virtual cluster's other cells are not for it."""
    t = site("one", "two", "three")
    t.vc("A", ("p", "node", 1), pins=[("mine", "p", "node", 0)])
    job = t.ask("A", 4, pin="mine")
    t.settles = False
    pin(t, ("mine", "node", 1))
    assert not t.guaranteed(job)
    t.state.pending.policies = True
    assert step(t.state, (), t.now, Random(0), t.policy).refused == ()
    t.state.undo()
    assert t.job(job).state is JobState.RUNNING


@pytest.mark.parametrize("quota", [(), (("p", "node", 1),)])
def test_a_pin_that_comes_back_is_of_those_who_were_in_it(quota: tuple[tuple[str, str, int], ...]) -> None:
    """And not of a job that came later, for which they would have to leave."""
    t = site("one", "two")
    t.vc("A", *quota, pins=[("mine", "p", "node", 0)])
    job = t.ask("A", 4, pin="mine")
    pin(t)
    assert not t.guaranteed(job)
    pin(t, ("mine", "node", 0))
    later = t.ask("A", 4, pin="mine")
    assert (t.guaranteed(job), t.at(job)) == (True, ["one[0..3]"])
    assert t.job(later).state is JobState.QUEUED
    t.end(job)
    assert t.guaranteed(later)


def test_who_names_one_pin_is_not_promoted_into_another() -> None:
    t = site("one", "two")
    t.vc("A", pins=[("x", "p", "node", 0), ("y", "p", "node", 1)])
    job = t.ask("A", 4, pin="x")
    pin(t, ("y", "node", 1))
    pin(t, ("y", "node", 1), ("x", "switch", 0))
    assert not t.guaranteed(job)  # half of it is in there
    pin(t)
    pin(t, ("y", "node", 0))
    assert not t.guaranteed(job)
    assert t.owned() == {("p", "node", 0): "A"}


def test_who_waits_for_a_pin_that_is_faulty_says_so_and_who_waits_for_others_to_end_does_not() -> None:
    t = site("one", "two")
    t.vc("A", pins=[("x", "p", "node", 0)])
    first = t.ask("A", 1, pin="x")
    t.step(FaultsSeen("one", "a", ((3, "XID 79"),)))
    small = t.ask("A", 3, pin="x")
    assert t.waits(small) is Reason.BEYOND_QUOTA
    t.end(first)
    assert t.job(small).state is JobState.RUNNING
    wide = t.ask("A", 2, 2, pin="x", within="node")
    assert t.waits(wide) is Reason.CELLS_FAULTY
    assert t.job(wide).detail == "pool p: faulty cells of virtual cluster A: 1 device of pin x"
    t.end(small)
    assert t.waits(wide) is Reason.CELLS_FAULTY
    pin(t, ("x", "node", 1))
    assert t.job(wide).state is JobState.STARTING


# ---- which cells may be pinned -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [("switch", 0), ("device", 3), ("node", 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_pins_of_one_virtual_cluster_that_overlap_are_refused(second: tuple[str, int], turned: bool) -> None:
    """The jobs of one of the two would wait for ever."""
    t = site("one", "two")
    pins = [Pin("x", "p", "node", 0), Pin("y", "p", *second)]
    answer = t.reply(VcRequested("A", True, pins=tuple(reversed(pins) if turned else pins)))
    assert isinstance(answer, Refused)
    assert answer.reason == "PIN_TWICE"
    assert "of virtual cluster A overlap: " in str(answer)
    t.vc("B", pins=[("x", "p", "node", 0), ("y", "p", "switch", 2)])
    assert [t.at(t.ask("B", 2, pin=name)) for name in ("x", "y")] == [["one[0..1]"], ["two[0..1]"]]


def test_a_pin_grows_around_itself_and_shrinks_again() -> None:
    t = site("one", "two")
    t.vc("A", pins=[("x", "p", "switch", 0)])
    job = t.ask("A", 2, pin="x")
    assert isinstance(pin(t, ("x", "node", 0)), VcChanged)
    assert t.guaranteed(job)
    both = t.ask("A", 2, pin="x")
    assert (t.guaranteed(both), t.owned()) == (True, {("p", "node", 0): "A"})
    assert isinstance(pin(t, ("x", "switch", 1)), VcChanged)
    assert (t.guaranteed(job), t.guaranteed(both), t.owned()) == (False, True, {("p", "switch", 1): "A"})


def test_a_pin_gets_another_name_and_two_change_theirs() -> None:
    t = site("one", "two")
    t.vc("A", pins=[("x", "p", "node", 0)])
    assert isinstance(pin(t, ("y", "node", 0), ("x", "node", 1)), VcChanged)
    assert [t.at(t.ask("A", 4, pin=name)) for name in ("x", "y")] == [["two[0..3]"], ["one[0..3]"]]
    assert isinstance(pin(t, ("x", "node", 0), ("y", "node", 1)), VcChanged)
    assert {key[2]: row.pin for key, row in t.state.bindings.rows.items()} == {0: "x", 1: "y"}


def test_what_somebody_uses_or_has_pinned_cannot_be_pinned() -> None:
    t = site("one", "two", "three")
    t.vc("A", ("p", "node", 1), pins=[("x", "p", "switch", 0)])
    t.vc("B", pins=[("x", "p", "node", 1)])
    t.ask("A", 1)
    for cell in (("node", 1), ("device", 4), ("node", 2)):
        answer = pin(t, ("x", *cell))
        assert isinstance(answer, Refused)
        assert answer.reason == "CELL_IN_USE"


def test_nobody_waits_for_a_job_that_faulty_cells_keep_from_starting() -> None:
    t = site("one", "two")
    t.vc("A", ("p", "node", 2))
    t.step(DrainRequested("two", "", "op"))
    size = t.node("one").capacity.devices
    wide, small = t.ask("A", size, size), t.ask("A", 1)
    assert t.waits(wide) is Reason.CELLS_FAULTY
    assert t.job(small).state is JobState.RUNNING
    t.end(small)
    t.step(UndrainRequested("two"))
    assert t.job(wide).state is JobState.STARTING
