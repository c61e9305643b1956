"""Quotas that are numbers of devices: what they give, and what they do not (HiveD, section 2)."""

from scheduler_service.core.model import JobState, Reason
from scheduler_service.sim.policies.by_count import by_count
from tests.policies.tenants import OVERFLOW, Tenants


def two_nodes(counted: bool = True) -> Tenants:
    """Two nodes of four devices, half of which each of two tenants may use."""
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"), by_count=counted)
    if counted:
        tenants.policy = by_count()
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "node", 1))
    return tenants


def test_a_tenant_within_its_quota_waits_for_anothers_fragments() -> None:
    """As figure 2 has it; and with cells the same jobs do not hinder each other."""
    for counted in (True, False):
        tenants = two_nodes(counted)
        tenants.ask("A", 3)
        opportunistic_job = tenants.ask("B", 1)
        tenants.ask("A", 1)
        tenants.end(opportunistic_job)
        owner = tenants.ask("B", 4)
        if counted:
            assert tenants.waits(owner) is Reason.NO_ROOM
        else:
            assert tenants.at(owner) == ["two[0..3]"]


def test_beyond_the_quota_jobs_are_opportunistic_jobs() -> None:
    tenants = two_nodes()
    mine = [tenants.ask("A", 4, guarantee=OVERFLOW), tenants.ask("A", 3, guarantee=OVERFLOW)]
    assert [tenants.guaranteed(job) for job in mine] == [True, False]
    owner = tenants.ask("B", 4)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    assert tenants.job(mine[1]).state is JobState.STOPPING
    tenants.leave(mine[1])
    assert tenants.at(owner) == ["two[0..3]"]
    assert tenants.waits(mine[1]) is Reason.RECLAIMED
    tenants.end(mine[0])
    assert tenants.guaranteed(mine[1])


def test_opportunistic_jobs_come_within_the_quota_as_it_has_room() -> None:
    tenants = two_nodes()
    first, second = tenants.ask("A", 4, guarantee=OVERFLOW), tenants.ask("A", 2, guarantee=OVERFLOW)
    tenants.end(first)
    assert tenants.guaranteed(second)
    assert tenants.state.guaranteed == {"A": 2}
