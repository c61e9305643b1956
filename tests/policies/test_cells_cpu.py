"""Pools of nodes without devices: their leaves are CPUs, and all that is so of devices is so of them."""

import pytest

from scheduler_service.core.allocation.bindings import is_entitled
from scheduler_service.core.enact import enact
from scheduler_service.core.messages import DrainRequested, NodeSeen, NodeSilent, Place, Spot, VcRequested
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy
from scheduler_service.core.model.values import Vector
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, inventory, request

POOL = "cpu-4"


def cpu_nodes(*names: str, **settings: object) -> Tenants:
    """Nodes of four CPUs with 1 GiB each."""
    return Tenants(dict.fromkeys(names, "CPU4"), **settings)


def test_a_job_holds_as_many_cpus_as_carry_it_and_no_device() -> None:
    tenants = cpu_nodes("one", "two")
    tenants.vc("A", (POOL, "node", 1))
    small, by_memory = tenants.ask("A", 1, cpus=True), tenants.ask_host("A", 500, 2048)
    assert tenants.at(small) == ["one[0]"]
    assert tenants.at(by_memory) == ["one[1..2]"]  # half of a CPU, and the memory of two
    assert [tenants.guaranteed(job) for job in (small, by_memory)] == [True, True]
    assert tenants.run(small).given == ()
    assert tenants.owned() == {(POOL, "node", 1): "A"}
    assert tenants.waits(tenants.ask("A", 2, cpus=True)) is Reason.BEYOND_QUOTA
    assert tenants.free("one") == Vector(2500, 1024, 0)
    tenants.end(small)
    assert tenants.at(3) == ["one[0,3]"]
    assert tenants.state.idle_devices == {2: 0b1111}
    tenants.end(by_memory, 3)
    assert not tenants.state.bindings.rows
    assert tenants.state.idle_devices == {1: 0b1111, 2: 0b1111}


def test_who_asks_more_than_a_node_carries_is_told_so() -> None:
    tenants = cpu_nodes("one")
    tenants.vc("A", (POOL, "node", 1))
    assert "its nodes have 4 CPUs, and a task asks for 5" in str(tenants.refused("A", 5, cpus=True))
    tenants.vc("B", (POOL, "cpu", 0))
    refused = tenants.ask_host("B", 1000, 5000)
    assert refused.reason == "NEVER_IN_QUOTA"
    assert "a task asks for 5, which carry its 5000 MiB" in str(refused)
    assert "it has no devices" in str(tenants.refused("A", 1))
    assert tenants.refused("B", 1, cpus=True).reason == "NEVER_IN_QUOTA"


def test_a_node_that_has_nothing_is_no_place_and_stops_nobody() -> None:
    tenants = cpu_nodes("one")
    tenants.vc("A", (POOL, "node", 1))
    tenants.ask("A", 4, cpus=True)
    waits = tenants.ask("A", 1, cpus=True, guarantee=OPPORTUNISTIC)
    tenants.step(NodeSeen("none", "a", Inventory(Vector())))
    assert tenants.waits(waits) is Reason.NO_ROOM
    assert tenants.waits(tenants.ask("A", 1, cpus=True, guarantee=OPPORTUNISTIC)) is Reason.NONE
    tenants.end(1)
    assert tenants.at(waits) == ["one[0]"]


def test_opportunistic_jobs_leave_for_the_owner_of_the_cpus() -> None:
    tenants = cpu_nodes("one")
    tenants.vc("A", (POOL, "cpu", 3))
    tenants.vc("B", (POOL, "cpu", 1))
    opportunistic_jobs = [tenants.ask("B", 2, cpus=True, guarantee=OPPORTUNISTIC) for _ in range(2)]
    assert tenants.refused("A", 3, cpus=True).reason == "NEVER_IN_QUOTA"  # three single CPUs are no three together
    owners = [tenants.ask("A", 1, cpus=True) for _ in range(3)]
    assert [tenants.waits(job) for job in owners] == [Reason.WAITING_FOR_VICTIMS] * 3
    assert [tenants.job(opportunistic_job).state for opportunistic_job in opportunistic_jobs] == [JobState.STOPPING] * 2
    tenants.leave(opportunistic_jobs[0])
    earmarks = [row for row in tenants.state.earmarks.rows.values() if row.victims]
    assert [row.kept for row in earmarks] == [Vector()]
    assert [tenants.job(job).state for job in owners] == [JobState.RUNNING, JobState.RUNNING, JobState.QUEUED]
    tenants.leave(opportunistic_jobs[1])
    assert [place for job in owners for place in tenants.at(job)] == ["one[0]", "one[1]", "one[2]"]
    assert tenants.waits(opportunistic_jobs[0]) is Reason.RECLAIMED


def test_what_is_kept_of_cpus_is_what_has_become_free_of_them() -> None:
    tenants = cpu_nodes("one")
    tenants.vc("A", (POOL, "node", 1))
    first, second = (tenants.ask("A", 2, cpus=True, guarantee=OPPORTUNISTIC) for _ in range(2))
    owner = tenants.ask("A", 4, cpus=True)
    tenants.leave(first)
    earmark = tenants.earmark(owner)
    assert earmark is not None
    assert earmark.kept == Vector(2000, 512)
    assert tenants.free("one") == Vector(0, 4096 - 1024 - 512)
    tenants.state = tenants.state.rebuild()
    tenants.leave(second)
    assert tenants.at(owner) == ["one[0..3]"]


def test_one_that_overflowed_is_promoted_where_it_is() -> None:
    tenants = cpu_nodes("one", "two")
    tenants.vc("A", (POOL, "cpu", 4))
    own = [tenants.ask("A", 1, cpus=True) for _ in range(4)]
    opportunistic_job = tenants.ask("A", 1, cpus=True, guarantee=OVERFLOW)
    at = tenants.at(opportunistic_job)
    assert not tenants.guaranteed(opportunistic_job)
    tenants.end(own[0])
    assert tenants.guaranteed(opportunistic_job)
    assert tenants.at(opportunistic_job) == at
    tenants.change("A", (POOL, "cpu", 1))
    assert [tenants.guaranteed(job) for job in (*own[1:], opportunistic_job)].count(True) == 1


@pytest.mark.parametrize("goes", ["silent", "drained"])
def test_a_node_that_is_gone_dooms_the_cells_that_were_promised(goes: str) -> None:
    tenants = cpu_nodes("one", "two")
    tenants.vc("A", (POOL, "node", 1))
    tenants.vc("B", (POOL, "node", 1))
    job = tenants.ask("A", 4, cpus=True)
    tenants.step(NodeSilent("two") if goes == "silent" else DrainRequested("two", "repair", "op", False))
    assert tenants.doomed("B", POOL, "node") == 1
    waiting = tenants.ask("B", 1, cpus=True)
    assert tenants.waits(waiting) is Reason.CELLS_FAULTY
    tenants.end(job)
    assert tenants.at(waiting) == ["one[0]"]


def test_a_gang_within_a_rack_and_a_pinned_cell() -> None:
    names = tuple(f"n{i}" for i in range(4))
    tenants = Tenants(dict.fromkeys(names, "CPU4"), [PoolPlan("p", names, (("rack", 2),))])
    tenants.vc("A", ("p", "rack", 1), pins=[("mine", "p", "node", 0)])
    gang = tenants.ask("A", 3, 3, cpus=True, within="rack")
    assert tenants.at(gang) == ["n2[0..2]", "n3[0..2]"]
    assert tenants.at(tenants.ask("A", 2, cpus=True, pin="mine")) == ["n0[0..1]"]
    whole = tenants.ask("A", 1, cpus=True, levels=("cpu",))
    assert tenants.at(whole) == ["n2[3]"]


def test_a_whole_cell_is_had_by_one_who_asks_for_less() -> None:
    tenants = cpu_nodes("one")
    tenants.vc("A", (POOL, "node", 1))
    assert tenants.at(tenants.ask("A", 1, cpus=True, levels=("node",))) == ["one[0..3]"]


def test_nodes_with_other_numbers_of_cpus_are_another_pool() -> None:
    tenants = Tenants({"one": "CPU4", "two": "CPU6", "three": "FOUR"})
    pools = tenants.state.pools
    assert pools is not None
    assert sorted(pools.pools) == ["cpu-4", "cpu-6", "four-2x2"]
    tenants.vc("A", ("cpu-6", "node", 1), ("four-2x2", "node", 1))
    assert tenants.at(tenants.ask("A", 3, cpus=True)) == ["two[0..2]"]
    assert tenants.at(tenants.ask("A", 3)) == ["three[0..2]"]


def test_a_node_may_get_devices_and_lose_them() -> None:
    tenants = cpu_nodes("one")
    tenants.step(NodeSeen("one", "b", inventory("FOUR")))
    assert tenants.state.idle_devices == {1: 0b1111}
    tenants.vc("A", ("four-2x2", "node", 1))
    job = tenants.ask("A", 3)
    assert tenants.run(job).given == (0, 1, 2)
    tenants.end(job)
    tenants.step(NodeSeen("one", "c", Inventory(Vector(6_000, 6_144, 0))))
    assert tenants.state.idle_devices == {1: 0b111111}
    tenants.vc("B", ("cpu-6", "node", 1))
    assert tenants.at(tenants.ask("B", 5, cpus=True)) == ["one[0..4]"]


def test_higher_priority_and_trials_have_cpus_of_their_own_virtual_cluster() -> None:
    tenants = cpu_nodes("one")
    tenants.vc("A", (POOL, "node", 1), policy=VcPolicy("fitgpp"))
    long, short = tenants.ask("A", 2, cpus=True, grace=60), tenants.ask("A", 2, cpus=True, grace=5)
    trial = tenants.ask("A", 2, cpus=True, trial=True)
    assert tenants.waits(trial) is Reason.WAITING_FOR_VICTIMS
    assert tenants.job(short).state is JobState.STOPPING
    tenants.leave(short)
    assert tenants.guaranteed(trial)
    tenants.step(VcRequested("A", False, policy=VcPolicy("priority")))
    high = tenants.ask("A", 3, cpus=True, priority=1)
    assert tenants.waits(high) is Reason.WAITING_FOR_VICTIMS
    tenants.leave(long, trial)
    assert tenants.at(high) == ["one[0..2]"]


def test_idle_cpus_and_idle_devices_are_shared_by_what_is_held_of_each() -> None:
    """Twelve CPUs are as much of all CPUs as three devices are of all devices."""
    tenants = Tenants({"gpu": "FOUR"} | dict.fromkeys(("c1", "c2", "c3", "c4"), "CPU4"))
    for name in "ABC":
        tenants.vc(name)
    for _ in range(3):
        tenants.ask("A", 4, cpus=True, guarantee=OPPORTUNISTIC)
    tenants.ask("B", 2, guarantee=OPPORTUNISTIC)
    last = tenants.ask("C", 2, guarantee=OPPORTUNISTIC)
    queued = [tenants.ask(name, 2, guarantee=OPPORTUNISTIC) for name in "AB"]
    tenants.end(last)
    assert [tenants.job(job).state for job in queued] == [JobState.QUEUED, JobState.RUNNING]


def test_quotas_are_checked_as_others_are() -> None:
    tenants = cpu_nodes("one", "two")
    answer = tenants.reply(VcRequested("A", True, (Quota(POOL, "node", 1), Quota(POOL, "cpu", 5))))
    assert isinstance(answer, Exception)
    assert "1 cells of the level cpu too few" in str(answer)
    assert tenants.vc("A", (POOL, "node", 1), (POOL, "cpu", 4))
    assert request("A", 1, cpus=True).demand == Vector(1000, 1024, 0)


# ---- beside the devices of others ----------------------------------------------------------------------------------------


def half_beside(*names: str) -> Tenants:
    """Nodes of four devices, each of which carries 2 CPUs and 8 GiB; as much goes with none of them."""
    tenants = Tenants(dict.fromkeys(names, "FOUR"), host_percent=50)
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "device", 0))
    return tenants


def test_work_without_devices_never_takes_what_goes_with_a_device() -> None:
    tenants = half_beside("one")
    beside = [tenants.ask_host("B", 3000, 4096, guarantee=guarantee) for guarantee in (OPPORTUNISTIC, OVERFLOW)]
    assert [tenants.run(job).devices for job in beside] == [(), ()]
    assert not any(tenants.guaranteed(job) for job in beside)
    third = tenants.ask_host("A", 3000, 4096, guarantee=OPPORTUNISTIC)
    assert tenants.waits(third) is Reason.NO_ROOM  # although nobody uses the devices
    owner = tenants.ask("A", 4, cpu=8000)
    assert tenants.at(owner) == ["one[0..3]"]
    assert [tenants.job(job).state for job in beside] == [JobState.RUNNING] * 2
    tenants.end(beside[0])
    assert tenants.job(third).state is JobState.RUNNING


def test_a_device_carries_only_what_is_left_for_devices() -> None:
    tenants = half_beside("one")
    assert "1 of its devices carry 2 CPUs and 8192 MiB" in str(tenants.refused("A", 1, cpu=2500))


def test_nobody_is_guaranteed_what_goes_with_no_device() -> None:
    tenants = half_beside("one")
    assert tenants.ask_host("A", 1000, 1024).reason == "NEVER_IN_QUOTA"
    assert tenants.ask_host("A", 9000, 1024, guarantee=OPPORTUNISTIC).reason == "NO_POOL_FITS"
    beside = tenants.ask_host("A", 1000, 1024, guarantee=OPPORTUNISTIC)
    assert not is_entitled(tenants.state, tenants.job(beside), 1, 0)
    tenants.end(beside)
    later = tenants.ask_host("A", 8000, 1024, guarantee=OPPORTUNISTIC)
    waiting = tenants.ask_host("A", 1000, 1024, guarantee=OPPORTUNISTIC)
    assert tenants.waits(waiting) is Reason.NO_ROOM
    refused = enact(tenants.state, (Place(waiting, (Spot(1),)),), tenants.now)
    assert refused == f"job {waiting} does not fit on one beside what goes with its devices"
    tenants.end(later)
    assert not tenants.guaranteed(waiting)


def test_a_gang_without_devices_is_spread_over_what_goes_with_none() -> None:
    tenants = half_beside("one", "two")
    gang = tenants.ask("B", 5, 5, cpus=True, guarantee=OPPORTUNISTIC)
    assert [run.node for run in tenants.state.runs_of(gang)] == [1, 2]
    assert tenants.refused("B", 5, 5, 5, cpus=True, guarantee=OPPORTUNISTIC).reason == "NO_POOL_FITS"
    assert tenants.refused("B", 1, 1, cpus=True, guarantee=OPPORTUNISTIC, within="node").reason == "NO_POOL_FITS"


def test_what_goes_with_no_device_is_taken_before_the_cpus_of_others() -> None:
    tenants = Tenants({"gpu": "FOUR", "cpu": "CPU4"}, host_percent=25)
    tenants.vc("A", (POOL, "node", 1))
    first, second = (tenants.ask("A", 4, cpus=True, guarantee=OPPORTUNISTIC) for _ in range(2))
    assert [tenants.state.nodes.rows[tenants.run(job).node].name for job in (first, second)] == ["gpu", "cpu"]
    owner = tenants.ask("A", 4, cpus=True)
    assert tenants.job(first).state is JobState.RUNNING
    assert tenants.job(second).state is JobState.STOPPING
    tenants.leave(second)
    assert tenants.guaranteed(owner)


def test_without_the_setting_all_goes_with_the_devices() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", ("four-2x2", "node", 1))
    refused = tenants.ask_host("A", 1000, 1024, guarantee=OPPORTUNISTIC)
    assert refused.reason == "NO_POOL_FITS"
    assert "its nodes have devices, which the job does not ask for" in str(refused)
