"""Parts of devices in cells: the virtual cluster pays for a device once, and its jobs fill it."""

import pytest

from scheduler_service.core.model import JobState, Reason, ShareMode
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import WHOLE
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants

POOL = "four-2x2"
HALF = (500_000, 2000, ShareMode.SLICED)
QUARTER = (250_000, 1000, ShareMode.PACKED)
RUN, STOP, QUEUED = JobState.RUNNING, JobState.STOPPING, JobState.QUEUED


def site(cells: int = 1, policy: VcPolicy | None = None) -> Tenants:
    """One node of four devices. A owns single devices, and B owns nothing."""
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", (POOL, "device", cells), **({} if policy is None else {"policy": policy}))
    tenants.vc("B")
    return tenants


def states(tenants: Tenants, *jobs: int) -> list[JobState]:
    return [tenants.job(job).state for job in jobs]


@pytest.mark.parametrize("name", ["fifo", "fitgpp", "priority", "las", "fair"])
def test_guaranteed_jobs_fill_one_device_of_their_virtual_cluster(name: str) -> None:
    tenants = site(1, VcPolicy(name))
    jobs = [tenants.ask("A", 1, part=HALF) for _ in range(3)]
    assert states(tenants, *jobs) == [RUN, RUN, QUEUED]
    assert all(tenants.guaranteed(job) for job in jobs[:2])
    assert tenants.waits(jobs[2]) is Reason.BEYOND_QUOTA
    assert list(tenants.owned().values()) == ["A"], "one device is bound"
    assert tenants.at(jobs[0]) == tenants.at(jobs[1])
    tenants.end(jobs[0])
    assert tenants.guaranteed(jobs[2])
    tenants.end(jobs[1])
    tenants.end(jobs[2])
    assert not tenants.owned(), "the cell goes back with the last of them"


def test_a_virtual_cluster_reclaims_a_device_from_all_that_share_it() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", (POOL, "node", 1))
    tenants.vc("B")
    sharing = [tenants.ask("B", 1, guarantee=OPPORTUNISTIC, part=HALF) for _ in range(2)]
    assert tenants.state.opportunistic == {"B": 1}, "a device counts once"
    whole = tenants.ask("B", 3, guarantee=OPPORTUNISTIC)
    mine = tenants.ask("A", 1)
    told = [job for job in (*sharing, whole) if tenants.job(job).state is STOP]
    assert told in (sharing, [whole]), "all that share a device, or the other"
    everything = tenants.ask("A", 3)
    assert states(tenants, *sharing, whole) == [STOP, STOP, STOP]
    tenants.leave(*sharing, whole)
    assert states(tenants, mine, everything) == [RUN, RUN]
    assert not tenants.state.share_groups.rows


def test_a_guaranteed_part_reclaims_a_device_and_others_join_it() -> None:
    tenants = site(1)
    borrowed = tenants.ask("B", 4, guarantee=OPPORTUNISTIC)
    first = tenants.ask("A", 1, part=HALF)
    assert tenants.waits(first) is Reason.WAITING_FOR_VICTIMS
    second = tenants.ask("A", 1, part=HALF)
    tenants.leave(borrowed)
    assert states(tenants, first, second) == [RUN, RUN]
    assert tenants.guaranteed(first)
    assert tenants.guaranteed(second)


def test_guaranteed_and_opportunistic_parts_share_no_device() -> None:
    tenants = site(1)
    mine = tenants.ask("A", 1, part=QUARTER)
    other = tenants.ask("A", 1, guarantee=OPPORTUNISTIC, part=QUARTER)
    another = tenants.ask("B", 1, guarantee=OPPORTUNISTIC, part=QUARTER)
    assert len({tenants.at(job)[0] for job in (mine, other, another)}) == 3, "each virtual cluster by itself, too"
    assert tenants.at(tenants.ask("A", 1, guarantee=OPPORTUNISTIC, part=QUARTER)) == tenants.at(other)


def test_parts_that_overflow_are_promoted_with_their_device() -> None:
    """And not kept from that by a job that may never be guaranteed."""
    tenants = site(1)
    first = tenants.ask("A", 1, part=(WHOLE - 1, 100, ShareMode.SLICED))
    never = tenants.ask("A", 1, guarantee=OPPORTUNISTIC, part=HALF)
    over = [tenants.ask("A", 1, guarantee=OVERFLOW, part=HALF) for _ in range(2)]
    assert not any(map(tenants.guaranteed, (never, *over)))
    assert tenants.at(over[0]) == tenants.at(over[1]) != tenants.at(never)
    tenants.end(first)
    assert all(map(tenants.guaranteed, over))
    assert not tenants.guaranteed(never)


def test_members_have_no_more_of_the_node_than_goes_with_their_device() -> None:
    """A device carries 4 CPUs."""
    tenants = site(2)
    jobs = [tenants.ask("A", 1, cpu=1500, part=(200_000, 500, ShareMode.PACKED)) for _ in range(3)]
    places = [tenants.at(job) for job in jobs]
    assert places[0] == places[1] != places[2]


def test_a_pin_is_shared_by_those_who_name_it() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", (POOL, "device", 1), pins=[("p", POOL, "device", 7)])
    free, pinned, also = (tenants.ask("A", 1, part=QUARTER, **pin) for pin in ({}, {"pin": "p"}, {"pin": "p"}))
    assert tenants.at(pinned) == tenants.at(also) == ["one[3]"]
    assert tenants.at(free) != tenants.at(pinned)


def test_what_a_pool_cannot_hold_is_refused() -> None:
    """92 % of 16,384 MiB are 15,073."""
    tenants = site(1)
    tenants.ask("A", 1, part=(0, 15_073, ShareMode.PACKED))
    refused = tenants.refused("A", 1, part=(0, 15_074, ShareMode.PACKED))
    assert refused.reason == "NEVER_IN_QUOTA"
    assert "15073" in str(refused)
