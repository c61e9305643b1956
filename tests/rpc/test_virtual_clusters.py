"""ebb.v1.VirtualClusters: guarantees are made, changed and refused, and what is shown of cells is what is so."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from ebb.v1 import virtual_clusters_pb2 as pb

from tests.rpc.server import LIMIT, Agent, Server, failure

POOL = "p100-2x2"
G, O = job_pb2.GUARANTEE_GUARANTEED, job_pb2.GUARANTEE_OPPORTUNISTIC  # noqa: E741


@pytest.fixture
def site(database_url: str) -> Iterator[Server]:
    with Server(database_url, virtual_clusters=True, policy="fifo") as made:
        yield made


def node(server: Server, name: str, fault: str = "", **more: Any) -> Agent:
    """Of four devices in two switches."""
    agent = Agent(server, name, devices=4, levels=["switch"], **more)
    for device in agent.hello.devices:
        device.model = "P100"
        device.path.append(device.index // 2)
    agent.hello.devices[3].fault = fault
    return agent


@pytest.fixture
def nodes(site: Server) -> Iterator[list[Agent]]:
    with node(site, "n1") as first, node(site, "n2") as second:
        first.connect()
        second.connect()
        yield [first, second]


def quota(level: str, cells: int, pool: str = POOL) -> Any:
    return pb.CellQuota(pool=pool, level=level, cells=cells)


def create(server: Server, name: str, *quotas: Any, **more: Any) -> Any:
    request = pb.CreateVirtualClusterRequest(name=name, quotas=quotas, **more)
    return server.vcs.CreateVirtualCluster(request, timeout=LIMIT).virtual_cluster


def get(server: Server, name: str) -> Any:
    return server.vcs.GetVirtualCluster(pb.GetVirtualClusterRequest(name=name), timeout=LIMIT).virtual_cluster


def cells(server: Server, **asked: str) -> Any:
    return server.vcs.ListCells(pb.ListCellsRequest(**asked), timeout=LIMIT).pools


def uses(vc: Any) -> dict[str, tuple[int, int, int, int]]:
    return {use.level: (use.owned, use.bound, use.free, use.faulty) for use in vc.cells}


def test_one_is_created_and_the_same_again_is_the_same_answer(site: Server, nodes: list[Agent]) -> None:
    made = create(site, "vision", quota("node", 1), quota("switch", 1), weight=3)
    assert (made.name, made.weight, made.policy.name, made.policy.s, made.policy.cap) == ("vision", 3, "fifo", 4.0, 1)
    assert uses(made) == {"node": (1, 0, 1, 0), "switch": (1, 0, 1, 0)}
    assert create(site, "vision", quota("switch", 1), quota("node", 1), weight=3) == made, "in whatever order it is said"
    other = failure(lambda: create(site, "vision", quota("node", 1), weight=3))
    assert (other.code, other.reason) == (grpc.StatusCode.ALREADY_EXISTS, "VC_EXISTS")
    listed = site.vcs.ListVirtualClusters(pb.ListVirtualClustersRequest(), timeout=LIMIT).virtual_clusters
    assert list(listed) == [made]


def test_what_cannot_be_kept_is_refused_with_level_and_number(site: Server, nodes: list[Agent]) -> None:
    create(site, "a", quota("node", 1))
    refused = failure(lambda: create(site, "b", quota("node", 1), quota("device", 2)))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "INFEASIBLE_QUOTAS")
    assert dict(refused.info.metadata) == {"pool": POOL, "level": "device", "missing": "2"}
    assert failure(lambda: get(site, "b")).reason == "NO_SUCH_VC"
    for wrong, reason in ((quota("rack", 1), "NO_SUCH_LEVEL"), (quota("node", 1, "v100"), "NO_SUCH_POOL")):
        assert failure(lambda wrong=wrong: create(site, "b", wrong)).reason == reason  # type: ignore[misc]


def test_an_update_changes_what_it_names_and_leaves_the_rest(site: Server, nodes: list[Agent]) -> None:
    create(site, "a", quota("node", 1), weight=2, policy=pb.VirtualClusterPolicy(name="fitgpp", cap=3))

    def update(**fields: Any) -> Any:
        request = pb.UpdateVirtualClusterRequest(name="a", **fields)
        return site.vcs.UpdateVirtualCluster(request, timeout=LIMIT).virtual_cluster

    assert update(weight=5).weight == 5
    changed = update(policy=pb.VirtualClusterPolicy(s=1.5))
    assert (changed.weight, changed.policy.name, changed.policy.s, changed.policy.cap) == (5, "fitgpp", 1.5, 3)
    pinned = pb.PinnedCell(name="left", pool=POOL, level="switch", index=2)
    assert list(update(pins=pb.PinnedCells(pins=[pinned])).pins) == [pinned]
    assert uses(update(quotas=pb.CellQuotas())) == {}
    assert list(get(site, "a").pins) == [pinned]
    unknown = failure(lambda: update(policy=pb.VirtualClusterPolicy(name="best")))
    assert (unknown.code, unknown.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "policy.name")


def test_a_policy_has_settings_of_its_own(site: Server, nodes: list[Agent]) -> None:
    create(site, "a", quota("node", 1), policy=pb.VirtualClusterPolicy(name="las", settings={"threshold": 60}))

    def update(**fields: Any) -> Any:
        request = pb.UpdateVirtualClusterRequest(name="a", policy=pb.VirtualClusterPolicy(**fields))
        return dict(site.vcs.UpdateVirtualCluster(request, timeout=LIMIT).virtual_cluster.policy.settings)

    assert update(settings={"patience": 2}) == {"threshold": 60, "patience": 2}, "they are added"
    assert update(cap=2) == {"threshold": 60, "patience": 2}
    assert update(name="las", settings={"budget": 3}) == {"budget": 3}, "who names the policy begins anew"
    for settings, why in (({"limit": 1}, "no setting 'limit'"), ({"threshold": -1}, "threshold is -1")):
        refused = failure(lambda settings=settings: update(settings=settings))  # type: ignore[misc]
        assert (refused.code, refused.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "policy.settings")
        assert why in refused.text
    assert update(name="fifo") == {}


def test_a_pin_is_of_a_cell_that_is_there_and_free(site: Server, nodes: list[Agent]) -> None:
    def pin(index: int, name: str = "x") -> Any:
        return pb.PinnedCell(name=name, pool=POOL, level="switch", index=index)

    create(site, "a", pins=[pin(2)])
    for pins, reason in (([pin(2)], "CELL_IN_USE"), ([pin(99)], "NO_SUCH_CELL"), ([pin(3), pin(4)], "PIN_TWICE")):
        assert failure(lambda pins=pins: create(site, "b", pins=pins)).reason == reason  # type: ignore[misc]
    job = site.submit(virtual_cluster="a", devices=1, cpu_milli=1, cells=job_pb2.CellRequest(pin="x"))
    assert (site.get(job.id).node, list(site.get(job.id).devices)) == ("n1", [0])


def stands(server: Server, name: str) -> dict[str, tuple[str, int, int, list[tuple[str, list[int], str]]]]:
    return {
        use.name: (
            pb.PinState.Name(use.state).removeprefix("PIN_STATE_"),
            use.held,
            use.devices,
            [(fault.node, list(fault.devices), fault.why) for fault in use.faults],
        )
        for use in get(server, name).pin_uses
    }


def test_a_pin_is_free_in_use_or_faulty(site: Server) -> None:
    with node(site, "n1", fault="XID 79") as agent:
        agent.connect()
        pins = [pb.PinnedCell(name=name, pool=POOL, level="switch", index=at) for name, at in (("left", 2), ("right", 3))]
        create(site, "a", pins=pins)
        broken = "FAULTY", 0, 2, [("n1", [3], "XID 79")]
        assert stands(site, "a") == {"left": ("FREE", 0, 2, []), "right": broken}
        opportunistic_job = site.submit(virtual_cluster="a", devices=1, cpu_milli=1, guarantee=O)
        assert (site.get(opportunistic_job.id).node, stands(site, "a")["left"][0]) == ("n1", "FREE"), (
            "it goes when somebody wants it"
        )
        job = site.submit(virtual_cluster="a", devices=1, cpu_milli=1, cells=job_pb2.CellRequest(pin="left"))
        assert stands(site, "a") == {"left": ("IN_USE", 1, 2, []), "right": broken}
        site.cluster.Drain(cluster_pb2.DrainRequest(node="n1"), timeout=LIMIT)
        assert stands(site, "a") == {
            "left": ("IN_USE", 1, 2, [("n1", [], "drained")]),
            "right": ("FAULTY", 0, 2, [("n1", [], "drained"), ("n1", [3], "XID 79")]),
        }
        agent.started(1, job.id)
        agent.exited(2, job.id)
        site.until(job.id, "SUCCEEDED")
        assert stands(site, "a")["left"] == ("FAULTY", 0, 2, [("n1", [], "drained")])


def test_only_one_without_live_jobs_is_deleted(site: Server, nodes: list[Agent]) -> None:
    create(site, "a", quota("node", 1))
    job = site.submit(virtual_cluster="a", devices=1, cpu_milli=1)
    delete = pb.DeleteVirtualClusterRequest(name="a")
    assert failure(lambda: site.vcs.DeleteVirtualCluster(delete, timeout=LIMIT)).reason == "VC_IN_USE"
    nodes[0].started(1, job.id)
    nodes[0].exited(2, job.id)
    site.until(job.id, "SUCCEEDED")
    site.vcs.DeleteVirtualCluster(delete, timeout=LIMIT)
    assert failure(lambda: site.vcs.DeleteVirtualCluster(delete, timeout=LIMIT)).reason == "NO_SUCH_VC"


def test_jobs_of_one_that_never_was_are_not_there(site: Server, nodes: list[Agent]) -> None:
    """Those of one that was deleted are, and one without jobs has none."""

    def listed(vc: str, *states: Any) -> list[int]:
        asked = scheduler_pb2.ListRequest(virtual_cluster=vc, states=states)
        return [job.id for job in site.scheduler.List(asked, timeout=LIMIT).jobs]

    create(site, "a", quota("node", 1))
    create(site, "b")
    job = site.submit(virtual_cluster="a", devices=1, cpu_milli=1)
    nodes[0].started(1, job.id)
    nodes[0].exited(2, job.id)
    site.until(job.id, "SUCCEEDED")
    site.vcs.DeleteVirtualCluster(pb.DeleteVirtualClusterRequest(name="a"), timeout=LIMIT)
    queued = job_pb2.JOB_STATE_QUEUED
    assert (listed("a"), listed("a", queued), listed("b"), listed("")) == ([job.id], [], [], [job.id])
    for states in ((), (queued,)):
        refused = failure(lambda states=states: listed("visoin", *states))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "NO_SUCH_VC")
        assert (dict(refused.info.metadata), refused.text) == (
            {"vc": "visoin"},
            "there is no virtual cluster 'visoin'; there are: b",
        )


def test_a_job_says_what_it_asks_of_cells_and_how_it_holds_them(site: Server, nodes: list[Agent]) -> None:
    create(site, "a", quota("node", 1))
    asked = job_pb2.CellRequest(pool=POOL, level="switch", within=[job_pb2.Within(level="node", preferred=True)])
    job = site.get(site.submit(virtual_cluster="a", devices=2, cpu_milli=2, cells=asked).id)
    assert (job.spec.virtual_cluster, job.spec.guarantee, job.spec.cells) == ("a", G, asked)
    assert (job.node, list(job.devices), job.guaranteed, job.tasks[0].guaranteed) == ("n1", [0, 1], True, True)
    groups = [job_pb2.TaskGroup(count=1, resources=job_pb2.Resources(devices=1), level="device") for _ in range(2)]
    asked = job_pb2.CellRequest(within=[job_pb2.Within(level="switch", task_group=1)])
    gang = site.get(site.submit(virtual_cluster="a", guarantee=O, task_groups=groups, cells=asked).id)
    assert (gang.spec.guarantee, gang.spec.cells, [group.level for group in gang.spec.task_groups]) == (
        O,
        asked,
        ["device"] * 2,
    )
    assert (gang.guaranteed, {task.node for task in gang.tasks}) == (False, {"n2"})
    assert get(site, "a").opportunistic_devices == 2
    assert uses(get(site, "a")) == {"node": (1, 1, 0, 0)}


def test_a_job_that_can_never_have_what_it_asks_is_told_so(site: Server, nodes: list[Agent]) -> None:
    create(site, "a", quota("device", 2))
    for fields, reason in (
        ({}, "NO_VC"),
        ({"virtual_cluster": "b"}, "NO_SUCH_VC"),
        ({"virtual_cluster": "a"}, "NEVER_IN_QUOTA"),
        ({"virtual_cluster": "a", "cells": job_pb2.CellRequest(pin="x")}, "NO_SUCH_PIN"),
        ({"virtual_cluster": "a", "cells": job_pb2.CellRequest(pool="x")}, "NO_SUCH_POOL"),
        ({"virtual_cluster": "a", "cells": job_pb2.CellRequest(model="x")}, "NO_SUCH_MODEL"),
        ({"virtual_cluster": "a", "nodes": job_pb2.NodeRequest(names=["n1"])}, "NODES_BY_CELLS"),
        ({"virtual_cluster": "a", "guarantee": O, "cells": job_pb2.CellRequest(pin="x")}, "PIN_NEEDS_GUARANTEE"),
        ({"virtual_cluster": "a", "guarantee": O, "cells": job_pb2.CellRequest(level="node")}, "NO_POOL_FITS"),
    ):
        assert failure(lambda fields=fields: site.submit(devices=2, cpu_milli=2, **fields)).reason == reason  # type: ignore[misc]


def test_cells_are_shown_with_owner_and_use(site: Server, nodes: list[Agent]) -> None:
    create(site, "a", quota("node", 1))
    create(site, "b", pins=[pb.PinnedCell(name="end", pool=POOL, level="switch", index=5)])
    guaranteed = site.submit(virtual_cluster="a", devices=1, cpu_milli=1)
    loose = site.submit(virtual_cluster="b", devices=1, cpu_milli=1, guarantee=O)
    (pool,) = cells(site)
    assert (pool.name, pool.model, pool.node_level) == (POOL, "P100", 2)
    assert [(level.name, level.fan, level.cells, level.owned) for level in pool.levels] == [
        ("device", 1, 8, 0),
        ("switch", 2, 4, 0),
        ("node", 2, 2, 1),
    ]
    assert [(cell.level, cell.index, cell.virtual_cluster, cell.pin) for cell in pool.cells] == [
        ("node", 1, "a", ""),
        ("switch", 5, "b", "end"),
    ]
    held = {
        (cells.node, device.index): (device.use, device.virtual_cluster, list(device.job_ids))
        for cells in pool.nodes
        for device in cells.devices
        if device.use != pb.DEVICE_USE_IDLE
    }
    where = site.get(loose.id)
    assert held == {
        ("n1", 0): (pb.DEVICE_USE_GUARANTEED, "a", [guaranteed.id]),
        (where.node, where.devices[0]): (pb.DEVICE_USE_OPPORTUNISTIC, "b", [loose.id]),
    }
    (mine,) = cells(site, virtual_cluster="a")
    assert [cells.node for cells in mine.nodes] == ["n1"]
    assert failure(lambda: cells(site, pool="x")).reason == "NO_SUCH_POOL"


def test_faulty_devices_and_cells_that_cannot_be_had_are_shown(site: Server) -> None:
    with node(site, "n1") as agent:
        agent.connect()
        create(site, "a", quota("node", 1))
    with node(site, "n1", fault="XID 79") as agent:
        agent.connect()
        assert uses(get(site, "a")) == {"node": (1, 0, 0, 1)}
        (pool,) = cells(site)
        assert [(device.index, device.fault) for device in pool.nodes[0].devices if device.use == pb.DEVICE_USE_FAULTY] == [
            (3, "XID 79")
        ]
        assert {level.name: level.missing for level in pool.levels} == {"device": 0, "switch": 0, "node": 1}
        waits = site.get(site.submit(virtual_cluster="a", devices=4, cpu_milli=4).id)
        assert waits.reason == job_pb2.JOB_REASON_CELLS_FAULTY


def test_a_site_without_virtual_clusters_says_so(server: Server) -> None:
    for call in (lambda: create(server, "a"), lambda: get(server, "a"), lambda: cells(server)):
        refused = failure(call)
        assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_VIRTUAL_CLUSTERS")
    assert failure(lambda: server.submit(virtual_cluster="a")).reason == "NO_VIRTUAL_CLUSTERS"


def test_cells_and_guarantee_are_somebodys(server: Server) -> None:
    for fields in ({"guarantee": O}, {"cells": job_pb2.CellRequest(level="node")}):
        refused = failure(lambda fields=fields: server.submit(**fields))  # type: ignore[misc]
        assert (refused.code, refused.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "spec.virtual_cluster")


def test_after_a_restart_they_are_as_they_were(database_url: str) -> None:
    settings = {"virtual_clusters": True}
    with Server(database_url, **settings) as first, node(first, "n1") as agent:
        agent.connect()
        create(first, "a", quota("switch", 1), policy=pb.VirtualClusterPolicy(name="lrtp"))
        job = first.submit(virtual_cluster="a", devices=1, cpu_milli=1)
        agent.started(1, job.id)
        first.until(job.id, "RUNNING")
        before = get(first, "a"), cells(first)
    with Server(database_url, **settings) as second:
        after = get(second, "a"), cells(second)
        assert after[0] == before[0]
        assert uses(after[0]) == {"switch": (1, 1, 0, 0)}
        assert [pool.cells for pool in after[1]] == [pool.cells for pool in before[1]]
        assert second.get(job.id).guaranteed


def test_a_pool_without_devices_has_cpus_for_cells(site: Server) -> None:
    """Which of them a run holds is shown with the cells, and told to nobody else: its node has no devices to give."""
    with Agent(site, "c1", devices=0) as agent:
        agent.connect()
        create(site, "a", quota("cpu", 3, "cpu-8"))
        job = site.submit(virtual_cluster="a", cpu_milli=1000)
        start = agent.orders()[0].running
        assert (list(start.devices), list(site.get(job.id).devices), site.get(job.id).guaranteed) == ([], [], True)
        [pool] = cells(site)
        assert (pool.name, pool.model, [level.name for level in pool.levels]) == ("cpu-8", "", ["cpu", "node"])
        assert [(cpu.index, cpu.use, list(cpu.job_ids)) for cpu in pool.nodes[0].devices[:2]] == [
            (0, pb.DEVICE_USE_GUARANTEED, [job.id]),
            (1, pb.DEVICE_USE_IDLE, []),
        ]
        assert uses(get(site, "a")) == {"cpu": (3, 1, 2, 0)}
