"""What agents measure of runs reaches the engine where a policy introspects, once a minute, and nowhere else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import Engine, text

from scheduler_service.core.messages import MiniBatchMeasured
from scheduler_service.core.model import Run, RunKey, RunPhase
from scheduler_service.core.model.values import Vector
from scheduler_service.rpc.convert.agents import mini_batch_in
from scheduler_service.rpc.services.observations import decides
from tests.rpc.server import LIMIT, Agent, Server
from tests.store.waiting import wait_for

STEPS, POWER = job_pb2.MINI_BATCH_SOURCE_STEPS, job_pb2.MINI_BATCH_SOURCE_POWER


@pytest.fixture
def server(database_url: str) -> Iterator[Server]:
    with Server(database_url, policy="gandiva") as made:
        yield made


def seen(job_id: int, us: int = 10, steps: int = 20, source: Any = STEPS, **more: Any) -> link_pb.Observations:
    time = Duration(nanos=us * 1000)
    one = job_pb2.MiniBatch(job_id=job_id, run=1, time=time, confidence=0.9, source=source)
    counted = job_pb2.RunSteps(job_id=job_id, run=1, step=steps, measured=steps, state=job_pb2.STEP_STATE_RUNNING)
    return link_pb.Observations(mini_batches=[one], steps=[counted], **more)


def running(server: Server, agent: Agent) -> int:
    job = server.submit(devices=1)
    agent.orders()
    agent.started(1, job.id)
    agent.acknowledged()
    server.until(job.id, "RUNNING")
    return int(job.id)


def profile(engine: Engine) -> Any:
    with engine.connect() as conn:
        (more,) = conn.execute(text("SELECT more FROM job")).scalars()
    return (more or {}).get("profile")


def test_a_profile_is_kept_and_is_not_written_anew_within_a_minute(server: Server, agent: Agent, engine: Engine) -> None:
    job = running(server, agent)
    agent.send(observations=seen(job))
    found = wait_for(lambda: profile(engine), LIMIT)
    assert found[0] == 10
    agent.send(observations=seen(job, us=5000, steps=20))
    again = server.submit(devices=1)
    agent.orders()
    agent.started(2, again.id)
    agent.acknowledged()
    with engine.connect() as conn:
        first = conn.execute(text("SELECT more FROM job WHERE id = :id"), {"id": job}).scalar_one()
    assert first["profile"] == found


def test_a_policy_with_a_short_period_is_told_as_often(database_url: str, engine: Engine) -> None:
    with Server(database_url, policy="gandiva", policy_settings={"period": 1}) as server, Agent(server) as agent:
        agent.connect()
        job = running(server, agent)
        agent.send(observations=seen(job))
        assert wait_for(lambda: profile(engine), LIMIT)[0] == 10

        def later() -> bool:
            agent.send(observations=seen(job, us=5000))
            return bool(profile(engine)[0] == 5000)

        wait_for(later, LIMIT)


@pytest.mark.parametrize(
    ("steps", "executing", "enough"), [(20, [], True), (20, [True], True), (19, [], False), (20, [False], False)]
)
def test_what_decides_something(steps: int, executing: list[bool], enough: bool) -> None:
    parts = [link_pb.SliceObservation(job_id=7, run=1, executing=one) for one in executing]
    parts.append(link_pb.SliceObservation(job_id=8, run=1, executing=False))
    all_seen = seen(7, steps=steps, slices=parts)
    assert decides(RUN, mini_batch_in(all_seen.mini_batches[0], all_seen, RUN, "n1"), all_seen) is enough


RUN = Run(7, 1, 1, (2, 3), Vector(1000, 1024, 2), RunPhase.RUNNING, 0)


def observed(index: int, used: int, busy: int) -> cluster_pb2.DeviceObservation:
    return cluster_pb2.DeviceObservation(index=index, memory_used_mib=used, utilisation_percent=busy)


def test_the_most_memory_of_a_device_and_the_mean_utilisation_are_told() -> None:
    devices = [observed(1, 9000, 90), observed(2, 4000, 30), observed(3, 5000, 50)]
    all_seen = seen(7, source=POWER, us=500_000, devices=devices)
    told = mini_batch_in(all_seen.mini_batches[0], all_seen, RUN, "n1")
    assert told == MiniBatchMeasured("n1", RunKey(7, 1), 500_000, 120, 900_000, 5000, 400_000)


@pytest.mark.parametrize("executing", [True, False])
def test_of_a_run_that_takes_turns_devices_count_only_during_its_turn(executing: bool) -> None:
    part = link_pb.SliceObservation(job_id=7, run=1, executing=executing)
    all_seen = seen(7, devices=[observed(2, 4000, 30), observed(3, 5000, 50)], slices=[part])
    told = mini_batch_in(all_seen.mini_batches[0], all_seen, replace(RUN, group=4, shared=True), "n1")
    assert (told.memory_mib, told.utilisation_ppm) == ((5000, 400_000) if executing else (0, -1))
