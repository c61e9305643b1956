"""What agents measure of runs reaches the engine where a policy introspects, once a minute, and nowhere else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import Engine, text

from scheduler_service.core.messages import MiniBatchMeasured, SwitchingMeasured
from scheduler_service.core.model import Run, RunKey, RunPhase
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.values import Vector
from scheduler_service.rpc.convert.agents import mini_batch_in, switching_in
from scheduler_service.rpc.services.observations import decides, is_known, is_other
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


# ---- switches ----------------------------------------------------------------------------------------------------------


def taking_turns(server: Server, agent: Agent) -> tuple[int, int]:
    """Two jobs of all devices of a node."""
    jobs = []
    for number in (1, 2):
        jobs.append(int(server.submit(devices=2).id))
        agent.orders()
        agent.started(number, jobs[-1])
        agent.acknowledged()
        server.until(jobs[-1], "RUNNING")
    return jobs[0], jobs[1]


def switches(*jobs: int, park: float, **more: Any) -> link_pb.Observations:
    """Of jobs that take turns."""
    one = [link_pb.SliceObservation(job_id=job, run=1, park=lasts(park), **more) for job in jobs]
    return link_pb.Observations(slices=one)


def lasts(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=round(seconds % 1 * 1e9))


def told_periods(server: Server, job: int) -> list[str]:
    story = server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job), timeout=LIMIT).events
    return [event.text for event in story if event.kind == job_pb2.JOB_EVENT_KIND_RETIMED]


def test_what_switches_take_reaches_the_policy_and_the_agent_is_told_longer_turns(database_url: str, engine: Engine) -> None:
    """Nothing of it but the period is in the database."""
    with Server(database_url, policy="gandiva", policy_settings={"period": 1}) as server, Agent(server) as agent:
        for device in agent.hello.devices:
            device.memory_mib = 2000
        agent.connect()
        jobs = taking_turns(server, agent)

        def period() -> Any:
            agent.send(observations=switches(*jobs, park=0.1))
            with engine.connect() as conn:
                found = conn.execute(text("SELECT period_us FROM share_group")).scalars().all()
            return found != [1_000_000] and found

        assert wait_for(period, LIMIT) == [10_000_000]
        plans = [order.running.share for order in agent.orders()]
        assert {plan.period.seconds for plan in plans} == {10}
        for job in jobs:
            (said,) = told_periods(server, job)
            assert said.startswith("a cycle of turns takes 10 s instead of 1 s: to park and resume takes 0.2 s of each")


def test_what_an_agent_says_before_a_run_has_a_share_group_is_told_when_it_has_one(database_url: str, engine: Engine) -> None:
    """Its turns in another group are not over for the agent yet. The engine drops what it hears then."""
    with Server(database_url, policy="gandiva", policy_settings={"period": 1}) as server, Agent(server) as agent:
        for device in agent.hello.devices:
            device.memory_mib = 2000
        agent.connect()
        first = int(server.submit(devices=2).id)
        agent.orders()
        agent.started(1, first)
        agent.acknowledged()
        server.until(first, "RUNNING")
        agent.send(observations=switches(first, park=0.1))
        second = int(server.submit(devices=2).id)
        agent.orders()
        agent.started(2, second)
        agent.acknowledged()
        server.until(second, "RUNNING")

        def period() -> Any:
            agent.send(observations=switches(first, second, park=0.1))
            with engine.connect() as conn:
                return conn.execute(text("SELECT period_us FROM share_group")).scalars().all()

        wait_for(lambda: period() == [10_000_000], LIMIT)


@pytest.mark.parametrize(
    ("told", "now", "other"),
    [
        ((0, 0, 0, 0), (0, 0, 0, 0), False),
        ((0, 0, 0, 0), (0, 1, 0, 0), True),
        ((0, 1000, 0, 0), (0, 9000, 0, 0), False),
        ((0, 1_000_000, 0, 0), (0, 1_090_000, 0, 0), False),
        ((0, 1_000_000, 0, 0), (0, 1_110_000, 0, 0), True),
        ((0, 1_000_000, 0, 0), (0, 880_000, 0, 0), True),
        ((0, 0, 0, 5_000_000), (2_000_000, 0, 0, 0), True),
    ],
)
def test_what_differs_enough_to_be_told(told: tuple[int, ...], now: tuple[int, ...], other: bool) -> None:
    assert is_other(Switching(*told), Switching(*now)) is other


@pytest.mark.parametrize(
    ("seen_so_far", "known"),
    [
        ({}, False),
        ({"tried": True}, True),
        ({"switches": 1}, True),
        ({"outlasted": lasts(2)}, True),
        ({"rung": "driver"}, False),
    ],
)
def test_that_switches_take_nothing_is_known_once_a_park_was_tried(seen_so_far: dict[str, Any], known: bool) -> None:
    """An agent that is older than that tells how often it has parked the run."""
    one = link_pb.SliceObservation(job_id=7, run=1, **seen_so_far)
    assert is_known(one, switching_in(one, "n1").switching) is known


def test_turns_get_shorter_although_a_member_cannot_be_parked(database_url: str, engine: Engine) -> None:
    """Nothing that is measured of it ever changes."""
    with Server(database_url, policy="gandiva", policy_settings={"period": 1}) as server, Agent(server) as agent:
        for device in agent.hello.devices:
            device.memory_mib = 2000
        agent.connect()
        first, second = taking_turns(server, agent)

        def period_with(park: float, tried: bool) -> Any:
            seen = switches(first, park=park, switches=1)
            seen.slices.add(job_id=second, run=1, tried=tried)
            agent.send(observations=seen)
            with engine.connect() as conn:
                (found,) = conn.execute(text("SELECT period_us FROM share_group")).scalars()
            return found

        wait_for(lambda: period_with(0.2, tried=False) == 10_000_000, LIMIT)
        wait_for(lambda: period_with(0.005, tried=True) == 1_000_000, LIMIT)


def test_what_an_agent_says_of_switches() -> None:
    one = link_pb.SliceObservation(
        job_id=7, run=1, task=2, wait=lasts(1.5), park=lasts(2), resume=lasts(0.5), outlasted=lasts(9)
    )
    took = Switching(1_500_000, 2_000_000, 500_000, 9_000_000)
    assert switching_in(one, "n1") == SwitchingMeasured("n1", RunKey(7, 1, 2), took)
