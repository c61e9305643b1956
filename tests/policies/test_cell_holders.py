"""Who waits for cells of its own virtual cluster is told which jobs have them, and when the first of these ends."""

from random import Random
from typing import Any

from scheduler_service.core.messages import Accepted, CancelRequested, Submitted
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import Blocker, explain
from scheduler_service.policies.options import PreemptionSettings
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, request

FOURS = "four-2x2"


def limited(t: Tenants, vc: str, size: int, seconds: int, **wants: Any) -> int:
    answer = t.reply(Submitted("ann", "", with_changes(request(vc, size, **wants), time_limit_us=seconds * SECOND)))
    assert isinstance(answer, Accepted), answer
    t.begin(answer.job_id)
    return answer.job_id


def beyond(t: Tenants, job: int) -> Blocker:
    """What is said of its cells; sees that nothing was changed by it."""
    before = t.state.snapshot()
    found = explain(t.state, t.job(job), t.now, Random(0), stages("cells", PreemptionSettings()))
    assert t.state.snapshot() == before
    (blocker,) = [blocker for blocker in found.blockers if blocker.reason is Reason.BEYOND_QUOTA]
    return blocker


def told(t: Tenants, job: int) -> tuple[int, tuple[int, ...], float | None]:
    """How many, which, and in how many seconds the first of them ends."""
    blocker = beyond(t, job)
    end = blocker.first_end_us
    return blocker.holders, blocker.holder_jobs, None if end is None else (end - t.now) / SECOND


def test_those_in_its_cells_are_named_and_nobody_else() -> None:
    t = Tenants(dict.fromkeys(("one", "two", "three"), "FOUR"))
    t.vc("A", (FOURS, "switch", 1), (FOURS, "device", 1))
    t.vc("B", (FOURS, "node", 1))
    of_others, double = t.ask("B", 4), t.ask("A", 2)
    single = t.ask("A", 1)
    opportunistic_job, beside = t.ask("A", 1, guarantee=OPPORTUNISTIC), t.ask("A", 2, guarantee=OVERFLOW)
    assert [t.guaranteed(job) for job in (of_others, double, single, opportunistic_job, beside)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    wide = t.ask("A", 2)
    assert told(t, wide) == (1, (double,), None), "the end of a single device is no use to it"
    t.end(beside)
    assert told(t, t.ask("A", 1)) == (2, (double, single), None)


def test_the_first_that_ends_by_its_time_limit_comes_first_with_when() -> None:
    t = Tenants({"one": "FOUR"})
    t.vc("A", (FOURS, "device", 4))
    t.ask("A", 1)
    late, soon, last = limited(t, "A", 1, 500), limited(t, "A", 1, 100), t.ask("A", 1)
    waits = t.ask("A", 1)
    assert told(t, waits) == (4, (soon, late, 1, last), 100)
    t.step(CancelRequested(last))
    assert told(t, waits) == (4, (last, soon, late, 1), 10), "it was told to leave, and has its grace period"


def test_as_many_are_named_as_of_those_before_it() -> None:
    t = Tenants({"one": "DGX2", "two": "DGX2"})
    (pool,) = t.state.pools.pools if t.state.pools is not None else ()
    t.vc("A", (pool, "device", 18))
    jobs = [t.ask("A", 1) for _ in range(18)]
    assert told(t, t.ask("A", 1)) == (18, tuple(jobs[:16]), None)


def test_who_waits_for_others_to_leave_has_its_cells_already() -> None:
    t = Tenants({"one": "FOUR"})
    t.vc("A", (FOURS, "node", 1))
    t.vc("B")
    opportunistic_job = t.ask("B", 4, guarantee=OPPORTUNISTIC)
    first = t.ask("A", 4)
    assert t.job(first).reason is Reason.WAITING_FOR_VICTIMS
    second = t.ask("A", 4)
    assert told(t, second) == (1, (first,), None)
    t.leave(opportunistic_job)
    assert t.job(first).state is JobState.RUNNING
    assert told(t, second) == (1, (first,), None)


def test_of_a_pin_those_in_the_pin() -> None:
    t = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    t.vc("A", (FOURS, "node", 1), pins=(("x", FOURS, "switch", 2),))
    pinned, other = t.ask("A", 2, pin="x"), t.ask("A", 4)
    assert told(t, t.ask("A", 1, pin="x")) == (1, (pinned,), None)
    assert told(t, t.ask("A", 4)) == (1, (other,), None)


def test_a_gang_is_told_all_that_have_a_cell_for_one_of_its_tasks() -> None:
    t = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    t.vc("A", (FOURS, "node", 2), policy=VcPolicy("priority"))
    gang, single = t.ask("A", 1, 2), t.ask("A", 4)
    assert told(t, t.ask("A", 4, 2)) == (2, (gang, single), None)
