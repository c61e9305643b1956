"""What agents see of their devices: who is told, what of it is made durable, and what is refused."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, timedelta
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import Connection, text

import client_sdk as sdk
from client_sdk import Client
from tests.rpc.server import LIMIT, Agent, Server, failure
from tests.store.waiting import wait_for

Hold = Callable[[], AbstractContextManager[Callable[[], None]]]
LOST = "XID 79: the GPU has fallen off the bus"
NVML = cluster_pb2.MEMORY_SOURCE_NVML


def device(index: int, **seen: Any) -> cluster_pb2.DeviceObservation:
    return cluster_pb2.DeviceObservation(index=index, **seen)


def wave(job_id: int, run: int = 1, **fields: Any) -> cluster_pb2.MemoryCycle:
    return cluster_pb2.MemoryCycle(job_id=job_id, run=run, **({"source": NVML} | fields))


def see(agent: Agent, *devices: cluster_pb2.DeviceObservation, cycles: Any = ()) -> None:
    agent.send(observations=link_pb.Observations(devices=devices or (device(0), device(1)), cycles=cycles))


def look(server: Server, node: str = "n1") -> Any:
    return server.cluster.GetNode(cluster_pb2.GetNodeRequest(node=node), timeout=LIMIT)


def seen(server: Server) -> Any:
    """What is known, once there is something."""
    return wait_for(lambda: (said := look(server)).HasField("observations") and said.observations, LIMIT)


def faults(server: Server) -> dict[int, str]:
    return {device.index: device.fault for device in look(server).node.devices if device.fault}


def commit_no(conn: Connection) -> int:
    try:
        return int(conn.execute(text("SELECT commit_no FROM leader")).scalar_one())
    finally:
        conn.rollback()


# ---- who is told -------------------------------------------------------------------------------------------------------


def test_the_last_is_told_with_its_time(server: Server, agent: Agent) -> None:
    job = server.submit(devices=1)
    agent.orders()
    assert not look(server).HasField("observations")
    began = time.time()
    cycle = wave(job.id, period=Duration(seconds=1, nanos=5000), minimum_mib=300, maximum_mib=900, confidence=0.9)
    sent = [device(0, memory_used_mib=900, utilisation_percent=100), device(1, memory_used_mib=0)]
    see(agent, *sent, cycles=[cycle])
    known = seen(server)
    assert list(known.devices) == sent
    assert list(known.cycles) == [cycle]
    assert began - 1 <= known.time.seconds <= time.time() + 1
    see(agent, device(0, memory_used_mib=7), device(1), cycles=[cycle])
    wait_for(lambda: look(server).observations.devices[0].memory_used_mib == 7, LIMIT)
    assert not look(server).observations.devices[1].HasField("memory_used_mib")


def test_a_node_without_devices_may_say_that_it_sees_none(server: Server) -> None:
    """A driver that reports no GPU, or only such as were left out; the link lasts."""
    with Agent(server, "bare", devices=0) as bare:
        bare.connect()
        bare.send(observations=link_pb.Observations())
        known = wait_for(lambda: (said := look(server, "bare")).HasField("observations") and said, LIMIT)
        assert list(known.observations.devices) == []
        server.submit(cpu_milli=1000, devices=0)
        assert bare.orders()


async def test_the_clients_read_it(server: Server, agent: Agent) -> None:
    job = server.submit(devices=1)
    agent.orders()
    cycle = wave(job.id, device=1, period=Duration(seconds=1, nanos=5000), minimum_mib=300, maximum_mib=900, confidence=0.5)
    see(agent, device(0, memory_used_mib=900, utilisation_percent=100), device(1, fault=LOST), cycles=[cycle, wave(job.id)])
    known = seen(server)
    with Client(server.address) as client:
        found = client.node("n1").observations
        assert [node.observations for node in client.nodes()] == [None]
    assert found == sdk.Observations(
        time=known.time.ToDatetime(UTC),
        devices=(
            sdk.DeviceObservation(index=0, memory_used_mib=900, utilisation_percent=100),
            sdk.DeviceObservation(index=1, fault=LOST),
        ),
        cycles=(
            sdk.MemoryCycle(
                job_id=job.id,
                run=1,
                device=1,
                period=timedelta(seconds=1, microseconds=5),
                minimum_mib=300,
                maximum_mib=900,
                confidence=0.5,
            ),
            sdk.MemoryCycle(job_id=job.id, run=1, device=0, minimum_mib=0, maximum_mib=0),
        ),
    )
    async with sdk.AsyncClient(server.address) as client:
        assert (await client.node("n1")).observations == found


def test_runs_that_are_not_there_are_left_out(server: Server, agent: Agent) -> None:
    job = server.submit(devices=1)
    agent.orders()
    agent.started(1, job.id)
    assert agent.acknowledged() == 1
    see(agent, cycles=[wave(job.id), wave(job.id, run=2), wave(job.id, task=1), wave(job.id + 1)])
    assert list(seen(server).cycles) == [wave(job.id)]
    agent.exited(2, job.id)
    assert agent.acknowledged() == 2
    assert list(look(server).observations.cycles) == []


def test_they_go_with_the_link(server: Server) -> None:
    with Agent(server) as agent:
        agent.connect()
        see(agent)
        seen(server)
    wait_for(lambda: not look(server).HasField("observations"), LIMIT)
    with Agent(server) as agent:
        agent.connect()
        assert not look(server).HasField("observations")


def test_a_standby_knows_none(server: Server, database_url: str, agent: Agent) -> None:
    see(agent)
    seen(server)
    with Server(database_url, leads=False) as standby:
        said = look(standby)
        assert said.node.name == "n1"
        assert not said.HasField("observations")


def test_they_are_a_sign_of_life(database_url: str) -> None:
    with Server(database_url, heartbeat=0.1, silent_after=0.5) as server, Agent(server) as agent:
        agent.connect()
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            see(agent)
            time.sleep(0.1)
        assert look(server).node.state == cluster_pb2.NODE_STATE_UP


# ---- faults ------------------------------------------------------------------------------------------------------------


def test_a_fault_is_made_durable_and_goes(server: Server, agent: Agent, conn: Connection) -> None:
    see(agent, device(0), device(1, fault=LOST))
    wait_for(lambda: faults(server) == {1: LOST}, LIMIT)
    job = server.submit(devices=2)
    assert server.get(job.id).state == job_pb2.JOB_STATE_QUEUED
    server.cancel(job.id)
    fits = server.submit(devices=1)
    (order,) = agent.orders()
    assert (order.job_id, list(order.running.devices)) == (fits.id, [0])
    see(agent)
    wait_for(lambda: faults(server) == {}, LIMIT)
    assert conn.execute(text("SELECT count(*) FROM device WHERE fault <> ''")).scalar_one() == 0


def test_only_a_change_is_a_commit(server: Server, agent: Agent, conn: Connection) -> None:
    see(agent, device(0), device(1, fault=LOST))
    wait_for(lambda: faults(server) == {1: LOST}, LIMIT)
    before = commit_no(conn)
    for used in range(1, 50):
        see(agent, device(0, memory_used_mib=used), device(1, fault=LOST))
    wait_for(lambda: look(server).observations.devices[0].memory_used_mib == 49, LIMIT)
    assert commit_no(conn) == before


def test_a_change_that_could_not_be_kept_is_tried_again(
    server: Server, agent: Agent, commits_kept_out: Hold, conn: Connection
) -> None:
    with commits_kept_out() as until_one_waits:
        see(agent, device(0), device(1, fault=LOST))
        until_one_waits()
        see(agent, device(0, fault="hot"), device(1))  # and meanwhile it is another one
        wait_for(lambda: look(server).observations.devices[0].fault == "hot", LIMIT)
        assert faults(server) == {}
        conn.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ebb writer'"))
        conn.rollback()

    def told() -> bool:
        see(agent, device(0, fault="hot"), device(1))
        return faults(server) == {0: "hot"}

    wait_for(told, LIMIT)


def test_a_fault_before_the_first_observation_stands(server: Server) -> None:
    devices = [cluster_pb2.Device(index=0, uuid="a"), cluster_pb2.Device(index=1, uuid="b", fault=LOST)]
    with Agent(server) as agent:
        del agent.hello.devices[:]
        agent.hello.devices.extend(devices)
        agent.connect()
        assert faults(server) == {1: LOST}


# ---- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "cycles", "reason", "said"),
    [
        ([device(0)], [], "DEVICES", "its 2 devices"),
        ([device(0), device(1), device(2)], [], "DEVICES", "its 2 devices"),
        ([device(0), device(0)], [], "DEVICES", "its 2 devices"),
        ([device(0), device(2, fault="x")], [], "DEVICES", "its 2 devices"),
        ([device(0), device(1)], [wave(1, device=2)], "DEVICES", "no device 2"),
        ([device(0), device(1)], [wave(1, period=Duration(seconds=-1))], "INVALID_FIELD", "period"),
        ([device(0), device(1)], [wave(1, period=Duration())], "INVALID_FIELD", "period"),
        ([device(0), device(1)], [wave(1, period=Duration(seconds=1 << 40))], "INVALID_FIELD", "period"),
        ([device(0), device(1)], [wave(1, confidence=1.5)], "INVALID_FIELD", "confidence"),
        ([device(0), device(1)], [wave(1, confidence=float("nan"))], "INVALID_FIELD", "confidence"),
        ([device(0), device(1)], [wave(1, minimum_mib=9, maximum_mib=8)], "INVALID_FIELD", "8 is below minimum_mib, 9"),
        ([device(0), device(1)], [wave(1, maximum_mib=2**63 - 1)], "INVALID_FIELD", "maximum_mib"),
        ([device(0), device(1)], [wave(1, source=0)], "INVALID_FIELD", "source"),
        ([device(0), device(1)], [wave(1)] * 4097, "INVALID_FIELD", "cycles"),
        ([device(0), device(1, fault="x" * 257)], [], "INVALID_FIELD", "fault"),
        ([device(0, utilisation_percent=101), device(1)], [], "INVALID_FIELD", "utilisation_percent"),
    ],
)
def test_what_cannot_be_seen_there_ends_the_stream(
    server: Server, agent: Agent, devices: Any, cycles: Any, reason: str, said: str
) -> None:
    see(agent, *devices, cycles=cycles)
    why = failure(lambda: agent.receive("desired_runs"))
    assert why.reason == reason
    assert said in why.text
    assert faults(server) == {}
    assert not look(server).HasField("observations")
