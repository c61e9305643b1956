"""Suppositions: whatever is changed inside one, everything is as it was afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from random import Random

import pytest

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.guarantee import demote
from scheduler_service.core.engine import step
from scheduler_service.core.messages import CancelRequested, Submitted
from scheduler_service.core.model import EventKind
from scheduler_service.core.model.tenants.virtual_clusters import Binding, VcPolicy
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event
from tests.core.driver import unsaved
from tests.policies.tenants import OPPORTUNISTIC, Tenants, request

POOL = "four-2x2"


class Site(Tenants):
    """A's job fills A's node. An opportunistic one has to leave B's node, for a job that waits for it."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("one", "two"), "FOUR"))
        self.vc("A", (POOL, "node", 1), policy=VcPolicy("fitgpp", proxy_after_us=10**9))
        self.vc("B", (POOL, "node", 1), policy=VcPolicy(proxy_after_us=10**9))
        self.of_a = self.ask("A", 4)
        self.borrowing = self.ask("A", 4, guarantee=OPPORTUNISTIC)
        self.waiting = self.ask("B", 2)
        assert self.guaranteed(self.of_a)
        assert self.earmark(self.waiting)

    def turn_everything_over(self) -> None:
        """As policies may suppose it, and more."""
        state = self.state
        demote(state, self.of_a, self.now)
        drop_earmarks(state, self.now, self.waiting, "for this test")
        for job in (self.of_a, self.borrowing):
            for run in state.runs_of(job):
                state.put(state.runs, run.key, None)
        state.put(state.bindings, (POOL, "switch", 0), Binding(POOL, "switch", 0, state.vc_ids["B"]))
        state.put(state.vcs, state.vc_ids["A"], None)
        state.put(state.jobs, self.waiting, None)
        log_event(state, self.now, self.of_a, EventKind.ENDED)


@contextmanager
def as_before(state: State) -> Iterator[None]:
    before, noted = state.snapshot(), unsaved(state)
    yield
    assert unsaved(state) == noted
    assert state.snapshot() == before == state.rebuild().snapshot()


@pytest.mark.parametrize("flags", list(product((False, True), repeat=4)))
def test_nothing_is_left_of_what_is_supposed(flags: tuple[bool, bool, bool, bool]) -> None:
    site = Site()
    state = site.state
    pending = state.pending
    pending.policies, pending.queue_grew, pending.market, pending.inventory = flags
    state.pending.vcs.add(1)
    state.pending.jobs.add(1)
    before, noted = state.snapshot(), unsaved(state)
    with as_before(state):
        with state.supposing():
            site.turn_everything_over()
            state.pending.queue_grew = True
            state.pending.vcs.add(2)
            state.pending.vcs.discard(1)
            state.pending.jobs.add(2)
            assert all(state.snapshot()[part] != before[part] for part in ("rows", "pools", "idle", "earmarks_of", "room"))
            assert unsaved(state)["log"] != noted["log"]
        pending = state.pending
        assert (pending.policies, pending.queue_grew, pending.market, pending.inventory) == flags


def test_what_was_changed_before_stays_changed() -> None:
    site = Site()
    state = site.state
    demote(state, site.of_a, site.now)
    with as_before(state), state.supposing():
        drop_earmarks(state, site.now, site.waiting, "for this test")
    assert not site.guaranteed(site.of_a)
    state.undo()
    assert site.guaranteed(site.of_a)


def test_one_inside_another_is_over_before_it() -> None:
    site = Site()
    state = site.state
    with as_before(state), state.supposing():
        drop_earmarks(state, site.now, site.waiting, "for this test")
        with as_before(state), state.supposing():
            site.turn_everything_over()
        assert not state.earmarks.rows


def test_it_is_over_when_something_is_raised() -> None:
    site = Site()

    def suppose() -> None:
        with site.state.supposing():
            site.turn_everything_over()
            raise ZeroDivisionError

    with as_before(site.state), pytest.raises(ZeroDivisionError):
        suppose()


def test_a_step_may_be_supposed() -> None:
    """With what its policy supposes, and with the flags that it resets at its end."""
    site = Site()
    state = site.state
    events = CancelRequested(site.of_a), Submitted("ann", "", request("A", 2, trial=True))
    with as_before(state), state.supposing():
        supposed = step(state, events, site.now, Random(1), site.policy)
    taken = step(state, events, site.now, Random(1), site.policy)
    assert taken.changes == supposed.changes
    assert taken.orders == supposed.orders
    assert taken.log == supposed.log
    assert taken.orders
