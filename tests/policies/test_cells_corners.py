"""What the state machine of tenants found, each as a small case."""

import pytest

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.queries import lacks, nodes_in
from scheduler_service.core.messages import (
    FaultsSeen,
    FenceRequested,
    NodeDeleteRequested,
    NodeSeen,
    NodeSilent,
    Submitted,
    VcRequested,
)
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Pin, VcPolicy
from tests.policies.tenants import OPPORTUNISTIC, OVERFLOW, Tenants, inventory, request

# ---- what is faulty ----------------------------------------------------------------------------------------------------


def test_who_waits_is_told_of_faults_also_where_others_take_what_was_left_in_the_same_step() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two", "three"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 2))
    tenants.vc("B", ("four-2x2", "node", 1))
    tenants.ask("A", 4)
    tenants.faulty({0: "it is lost"}, "three")
    job = tenants.state.cluster.next_job
    tenants.step(Submitted("ann", "", request("A", 4, 4)), Submitted("ann", "", request("B", 4)))
    assert (tenants.waits(job), tenants.at(job + 1)) == (Reason.CELLS_FAULTY, ["two[0..3]"])


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
    opportunistic_job = tenants.ask("A", 1, guarantee=OPPORTUNISTIC, cpu=4000)
    other = tenants.ask("A", 1, guarantee=OPPORTUNISTIC, cpu=1000)
    owners = [tenants.ask("A", 1, cpu=4000) for _ in range(2)]
    assert [tenants.waits(job) for job in owners] == [Reason.WAITING_FOR_VICTIMS] * 2
    tenants.leave(other)
    tenants.leave(opportunistic_job)
    assert [tenants.job(job).state for job in owners] == [JobState.RUNNING] * 2


def test_a_run_with_a_faulty_device_leaves_the_healthy_one_behind() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", ("four-2x2", "device", 3))
    opportunistic_job = tenants.ask("A", 2, guarantee=OPPORTUNISTIC)
    assert tenants.at(opportunistic_job) == ["one[0..1]"]
    tenants.step(FaultsSeen("one", "a", ((1, "XID 79"),)))
    owners = [tenants.ask("A", 1) for _ in range(3)]
    assert tenants.waits(owners[2]) is Reason.WAITING_FOR_VICTIMS
    tenants.leave(opportunistic_job)
    assert tenants.at(owners[2]) == ["one[0]"]


def test_what_a_victim_was_to_leave_is_kept_when_another_of_its_devices_breaks() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", ("four-2x2", "device", 3))
    opportunistic_job = tenants.ask("A", 2, guarantee=OPPORTUNISTIC)
    owners = [tenants.ask("A", 1) for _ in range(3)]
    before = tenants.earmark(owners[2])
    assert before is not None
    assert before.devices == ((0,),)
    tenants.step(FaultsSeen("one", "a", ((1, "XID 79"),)))
    assert tenants.earmark(owners[2]) == before
    tenants.step(FaultsSeen("one", "a", ((0, "XID 79"),)))  # the other one is well again
    assert [tenants.state.earmarks.rows[i].devices for i in tenants.state.earmarks_of[owners[2]]] == [((1,),)]
    tenants.leave(opportunistic_job)
    assert tenants.at(owners[2]) == ["one[1]"]


# ---- who waits, and for what ---------------------------------------------------------------------------------------------


def test_behind_one_that_overflows_the_next_gets_the_cell_that_was_too_little_for_it() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "switch", 2))
    tenants.vc("B", ("four-2x2", "node", 1))
    blocks = [tenants.ask("B", 4), tenants.ask("A", 2), tenants.ask("A", 2)]
    wide, small, last = tenants.ask("A", 2, 2, guarantee=OVERFLOW), tenants.ask("A", 2), tenants.ask("A", 2)
    assert tenants.waits(wide) is Reason.BEYOND_QUOTA
    tenants.step(*(tenants.exited(job) for job in blocks[:2]))
    assert not tenants.guaranteed(wide)
    assert tenants.guaranteed(small)
    assert tenants.waits(last) is Reason.BEYOND_QUOTA  # the first of its queue now, and says why


def test_what_could_not_fit_anywhere_even_alone_is_refused() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 1))
    for guarantee in (OPPORTUNISTIC, OVERFLOW):
        assert tenants.refused("A", 4, 4, 1, guarantee=guarantee).reason == "NO_POOL_FITS"
        assert tenants.refused("A", 4, 1, guarantee=guarantee, within="node").reason == "NO_POOL_FITS"
        tenants.end(tenants.ask("A", 4, 4, guarantee=guarantee))


def test_a_job_that_comes_back_to_a_quota_without_its_cell_says_that() -> None:
    tenants = Tenants({"one": "FOUR", "two": "FOUR"})
    tenants.vc("A", ("four-2x2", "node", 1))
    job = tenants.ask("A", 4)
    tenants.change("A", ("four-2x2", "device", 2))
    tenants.step(NodeSilent("one"))
    tenants.step(FenceRequested("one", "op"))
    assert tenants.waits(job) is Reason.NEVER_IN_QUOTA
    tenants.change("A", ("four-2x2", "node", 1))
    assert tenants.job(job).state is JobState.STARTING


def test_the_first_that_waits_for_idle_cells_says_so() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.ask("A", 3)
    assert tenants.waits(tenants.ask("A", 2, guarantee=OPPORTUNISTIC)) is Reason.NO_ROOM


def test_who_was_told_to_leave_is_not_promoted() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 1))
    tenants.vc("B", ("four-2x2", "node", 1))
    first, opportunistic_job = tenants.ask("A", 4), tenants.ask("A", 4, guarantee=OVERFLOW)
    owner = tenants.ask("B", 4)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    tenants.end(first)
    assert not tenants.guaranteed(opportunistic_job)
    tenants.cancel(owner)
    assert not tenants.guaranteed(opportunistic_job)
    tenants.leave(opportunistic_job)
    assert tenants.guaranteed(opportunistic_job)


# ---- virtual clusters that change --------------------------------------------------------------------------------------


def test_what_a_new_virtual_cluster_was_promised_is_there_at_once() -> None:
    """Two nodes suffice for one node and two devices; but those two are in use on different nodes."""
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", ("four-2x2", "device", 5))
    jobs = [tenants.ask("A", 1) for _ in range(5)]
    tenants.end(*jobs[1:4])
    assert sorted(tenants.at(jobs[0]) + tenants.at(jobs[4])) == ["one[0]", "two[0]"]
    tenants.change("A", ("four-2x2", "device", 2))
    assert [tenants.guaranteed(job) for job in (jobs[0], jobs[4])] == [True, True]
    tenants.vc("B", ("four-2x2", "node", 1))
    assert sorted(tenants.guaranteed(job) for job in (jobs[0], jobs[4])) == [False, True]
    owner, again = tenants.ask("B", 4), tenants.ask("A", 1)
    assert tenants.waits(owner) is Reason.WAITING_FOR_VICTIMS
    assert tenants.guaranteed(again)


def test_nodes_of_a_named_pool_must_be_like_the_first_that_joined() -> None:
    """Else whoever comes later, to an earlier place, would take the cells away from under those who run in them."""
    tenants = Tenants({"two": "FOUR", "three": "FOUR"}, [PoolPlan("p", ("one", "two", "three"))])
    tenants.vc("A", ("p", "switch", 2))
    job = tenants.ask("A", 2)
    assert tenants.at(job) == ["two[0..1]"]
    tenants.step(NodeSeen("one", "a", inventory("SIX")))
    pools = tenants.state.pools
    assert pools is not None
    assert list(pools.misfits) == [tenants.node("one").id]
    tenants.step(NodeSeen("one", "b", inventory("FOUR")))
    assert not pools.misfits
    assert tenants.guaranteed(job)


def test_a_named_pool_is_as_its_first_node_is_when_that_comes_back_changed() -> None:
    tenants = Tenants({"two": "FOUR", "three": "FOUR"}, [PoolPlan("p", ("two", "three"))])
    opportunistic_job = tenants.vc("A", ("p", "switch", 2)) and tenants.ask("A", 1, guarantee=OPPORTUNISTIC)
    assert tenants.at(opportunistic_job) == ["three[0]"]
    tenants.step(NodeSeen("two", "b", inventory("SIX")))
    pools = tenants.state.pools
    assert pools is not None
    assert pools.misfits == {2: "its devices are not like those of the other nodes of pool p"}
    tenants.step(NodeSeen("two", "c", inventory("FOUR")))
    assert pools.pools["p"].held_leaves(1) == (0, 1)


@pytest.mark.parametrize(("model", "pool", "leaves"), [("FOUR", "four-2x2", 4), ("CPU4", "cpu-4", 4)])
def test_a_deleted_node_has_no_cells(model: str, pool: str, leaves: int) -> None:
    """With its last node a pool is gone; what was pinned, and owned, is there again when the node is."""
    tenants = Tenants(dict.fromkeys(("one", "two"), model))
    tenants.vc("A", (pool, "node", 1), pins=[("mine", pool, "node", 2)])
    state, pools = tenants.state, tenants.state.pools
    assert pools is not None
    assert (pools.tops(pool), state.idle_devices.keys()) == (2, {1, 2})
    tenants.step(NodeSilent("two"), NodeDeleteRequested("two"))
    assert pools.tops(pool) == 1
    assert (state.idle_devices.keys(), state.cpus_of(2), list(pools.positions)) == ({1}, 0, [1])
    tenants.step(NodeSilent("one"), NodeDeleteRequested("one"))
    assert not pools.pools
    for name in ("one", "two"):
        tenants.step(NodeSeen(name, "a", inventory(model)))
    assert (pools.tops(pool), lacks(pools, pool)) == (2, False)
    assert [at for _, at in nodes_in(pools, next(iter(state.bindings.rows.values())))] == [(1 << leaves) - 1]
    assert [binding.pin for binding in state.bindings.rows.values()] == ["mine"]


# ---- cost --------------------------------------------------------------------------------------------------------------


def test_a_whole_idle_cell_is_found_without_a_look_at_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = Tenants(dict.fromkeys((f"n{i}" for i in range(12)), "FOUR"))
    tenants.vc("A", ("four-2x2", "node", 1))
    looked: list[int] = []
    idle = Pool.idle_leaves

    def counted(pool: Pool, slot: int) -> int:
        looked.append(slot)
        return idle(pool, slot)

    monkeypatch.setattr(Pool, "idle_leaves", counted)
    job = tenants.ask("A", 2, guarantee=OPPORTUNISTIC, levels=("switch",))
    assert tenants.at(job) == ["n11[0..1]"]
    assert not looked
    monkeypatch.undo()
    for _ in range(23):
        tenants.ask("A", 1, guarantee=OPPORTUNISTIC)
    again = tenants.ask("A", 2, guarantee=OPPORTUNISTIC, levels=("switch",))
    devices = tenants.run(again).devices
    assert devices in ((0, 1), (2, 3))


def test_how_cells_are_numbered_is_said_to_who_pins_one_that_there_is_not() -> None:
    tenants = Tenants({"one": "FOUR", "two": "FOUR"}, [PoolPlan("racked", ("two", "one"), (("rack", 2),))])

    def refused(level: str) -> str:
        event = VcRequested("A", True, (), (Pin("mine", "racked", level, 99),))
        return str(tenants.reply(event))

    named = "node two has number"
    assert f"racked has no device 99; {named} 0 to 3, and `ebb cells` shows the numbers" in refused("device")
    assert f"racked has no switch 99; {named} 0 to 1, and" in refused("switch")
    assert f"racked has no node 99; {named} 0, and" in refused("node")
    assert "racked has no rack 99; it has 1, from 0 on" in refused("rack")


def test_a_gang_with_a_task_on_a_silent_node_is_not_preempted_and_another_is() -> None:
    """Nobody there can be told to leave; the plan was refused, and the trial waited."""
    t = Tenants(dict.fromkeys(("n1", "n2", "n3"), "FOUR"))
    t.vc("A", ("four-2x2", "node", 3), policy=VcPolicy("lrtp"))
    other = t.ask("A", 4)
    gang = t.ask("A", 4, 4)
    t.silence(t.where(gang).name)
    trial = t.ask("A", 4, trial=True)
    assert t.waits(trial) is Reason.WAITING_FOR_VICTIMS
    assert t.job(other).state is JobState.STOPPING
