"""A job that overflowed is reclaimed for one behind it in the order of its virtual cluster. Then it has the devices itself."""

import pytest

from scheduler_service.core.messages import VcRequested
from scheduler_service.core.model import EventKind, JobState, Reason
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy
from tests.policies.tenants import OVERFLOW, Tenants

LAS = VcPolicy("las", settings=(("threshold", 60.0),))


def overflowed(policy: VcPolicy, **wants: int) -> tuple[Tenants, int, int]:
    """A node of two switches. The first job has the virtual cluster's switch, the second overflowed into the other switch, and
    the third waits. When the virtual cluster has the other switch, too, the second job is reclaimed for the third."""
    t = Tenants({"n1": "FOUR"}, [])
    pool = next(iter(t.state.pools.pools)) if t.state.pools else ""
    t.vc("A", (pool, "switch", 1), policy=policy)
    t.ask("A", 2, priority=9)
    before, waits = t.ask("A", 2, guarantee=OVERFLOW, **wants), t.ask("A", 2)
    assert not t.guaranteed(before)
    t.step(VcRequested("A", False, (Quota(pool, "switch", 2),), policy=policy))
    assert t.job(before).state is JobState.STOPPING
    assert t.waits(waits) is Reason.WAITING_FOR_VICTIMS
    return t, before, waits


@pytest.mark.parametrize(("policy", "priority"), [(LAS, 0), (VcPolicy("priority"), 1)])
def test_a_job_that_was_reclaimed_takes_what_is_kept_for_one_behind_it(policy: VcPolicy, priority: int) -> None:
    """If the other started first, it would be preempted in the same step."""
    t, before, waits = overflowed(policy, priority=priority)
    told = t.step(t.exited(before, yielded=True)).log
    assert [(line.job_id, line.kind) for line in told if line.kind is EventKind.PLACED] == [(before, EventKind.PLACED)]
    assert not [line for line in told if line.kind in (EventKind.PREEMPTING, EventKind.RECLAIMED)]
    assert t.guaranteed(before)
    assert t.waits(waits) is Reason.BEYOND_QUOTA
    t.begin(before)
    assert t.job(before).state is JobState.RUNNING


def test_one_that_nobody_may_take_from_starts_on_what_is_kept_for_it() -> None:
    t, before, waits = overflowed(VcPolicy("fifo"))
    t.step(t.exited(before, yielded=True))
    assert t.guaranteed(waits)
    assert t.waits(before) is Reason.RECLAIMED
