"""What the state machine of tenants found, each as a small case."""

from scheduler_service.core.job import JobState, Reason
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants

# ---- what is kept for somebody -----------------------------------------------------------------------------------------


def test_a_victim_leaves_behind_only_the_devices_that_are_kept() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", ("four-2x2", "node", 1))
    first, second = (tenants.ask("A", 2, guarantee=OPPORTUNISTIC) for _ in range(2))
    owner = tenants.ask("A", 3)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    tenants.leave(second)  # of whose two devices the owner wants one
    earmark = tenants.earmark(owner)
    assert earmark is not None
    assert earmark.kept.devices == 1
    assert tenants.free("one").devices == 1
    tenants.leave(first)
    assert tenants.at(owner) == ["one[0..2]"]


def test_a_device_that_is_not_there_yet_keeps_no_share_of_the_host() -> None:
    tenants = Tenants({"one": "CT1"})
    tenants.vc("A", ("ct1-2", "device", 2))
    guest = tenants.ask("A", 1, guarantee=OPPORTUNISTIC, cpu=4000)
    other = tenants.ask("A", 1, guarantee=OPPORTUNISTIC, cpu=1000)
    owners = [tenants.ask("A", 1, cpu=4000) for _ in range(2)]
    assert [tenants.waits(job) for job in owners] == [Reason.WAITING_FOR_VICTIMS] * 2
    tenants.leave(other)
    tenants.leave(guest)
    assert [tenants.job(job).state for job in owners] == [JobState.RUNNING] * 2
