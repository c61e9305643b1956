"""Samples over the link: what an agent has measured reaches the engine, seldom, and its estimates reach the users."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import job_pb2
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import Engine, text

from client_sdk import Client, ConfigurationEstimate, EstimateSource, JobReason
from scheduler_service.core.messages import RunMeasured
from scheduler_service.core.model import Configuration, Job, JobSpec, RunKey
from scheduler_service.core.model.estimates import Estimate, Source
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.rpc.convert.agents import measured_in
from scheduler_service.rpc.convert.jobs import estimates_out
from tests.rpc.server import LIMIT, Agent, Server
from tests.store.waiting import wait_for

CPUS = job_pb2.Resources(cpu_milli=2000, memory_mib=64)


@pytest.fixture
def server(database_url: str) -> Iterator[Server]:
    with Server(database_url, policy="allox", policy_settings={"sample_percent": 10}) as made:
        yield made


def seconds(value: float) -> Duration:
    return Duration(nanos=round(value * 1e9) % 10**9, seconds=int(value))


def measured(job_id: int, steps: int, each: float, **fields: Any) -> link_pb.RunMeasurement:
    given = {"run": 1, "total": 1000, "first_step": seconds(1 + each), "last_step": seconds(1 + each * steps)}
    return link_pb.RunMeasurement(job_id=job_id, steps=steps, **(given | fields))


def see(agent: Agent, *seen: link_pb.RunMeasurement) -> None:
    agent.send(observations=link_pb.Observations(measurements=seen))


def sampled(server: Server, agent: Agent) -> Any:
    """A job that may run on a device or on CPUs; its sample runs."""
    job = server.submit(devices=1, alternatives=[job_pb2.Configuration(resources=CPUS)])
    agent.orders()
    agent.started(1, job.id)
    agent.acknowledged()
    return server.until(job.id, "RUNNING")


def readings(engine: Engine) -> list[int]:
    """The numbers of steps that the engine was told of."""
    with engine.connect() as conn:
        (more,) = conn.execute(text("SELECT more FROM job")).scalars()
    return [steps for steps, _ in (more or {}).get("sampling", [0, 0, 0, []])[3]]


def test_a_sample_ends_when_it_has_done_enough_steps(server: Server, agent: Agent) -> None:
    job = sampled(server, agent)
    assert job.sampling
    see(agent, measured(job.id, 100, 0.5, memory_mib=300))
    (stop,) = agent.orders()
    assert stop.stopped.reason == link_pb.STOP_REASON_SAMPLED
    client = Client(server.address)
    shown = client.get(job.id)
    assert (shown.sampling, shown.reason) == (False, JobReason.SAMPLED)
    (estimate,) = shown.estimates
    assert estimate == ConfigurationEstimate(
        configuration=0,
        time=timedelta(seconds=501),
        error=timedelta(seconds=55.11),
        sources=(EstimateSource.SAMPLE,),
        memory_mib=300,
    )
    client.close()


def test_the_engine_is_told_of_twice_as_many_steps_or_of_the_end(server: Server, agent: Agent, engine: Engine) -> None:
    job = sampled(server, agent)
    for steps in (1, 10, 15, 19):
        see(agent, measured(job.id, steps, 0.5))
    see(agent, measured(job.id, 20, 0.5))
    assert wait_for(lambda: (found := readings(engine))[-1:] == [20] and found, LIMIT) == [1, 10, 20]
    see(agent, measured(job.id, 99, 0.5))
    see(agent, measured(job.id, 100, 0.5))
    assert [order.WhichOneof("state") for order in agent.orders()] == ["stopped"]


def test_what_is_measured_of_other_runs_is_not_for_the_engine(server: Server, agent: Agent, engine: Engine) -> None:
    job = sampled(server, agent)
    see(agent, measured(job.id, 99, 0.5, run=2), measured(job.id, 99, 0.5, task=1), measured(job.id + 1, 99, 0.5))
    see(agent, measured(job.id, 2, 0.5))
    assert wait_for(lambda: readings(engine), LIMIT) == [1, 2]


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"total": -1}, {"spread": -0.5}, {"last_step": Duration(seconds=-1)}])
def test_what_cannot_be_is_refused(server: Server, agent: Agent, wrong: dict[str, Any]) -> None:
    job = sampled(server, agent)
    one = measured(job.id, 5, 0.5)
    for name, value in wrong.items():
        if isinstance(value, Duration):
            getattr(one, name).CopyFrom(value)
        else:
            setattr(one, name, value)
    see(agent, one)
    failure = agent.ended()
    assert failure is not None
    assert name in failure.text


# ---- conversions ---------------------------------------------------------------------------------------------------------


def test_a_measurement_as_an_event() -> None:
    said = measured(7, 9, 0.5, task=2, spread=0.25, memory_mib=5)
    key = RunKey(7, 1, 2)
    assert measured_in(said, "n1") == RunMeasured("n1", key, 9, 1_500_000, 5_500_000, 1000, 250_000, 5)


def test_estimates_of_each_configuration() -> None:
    others = tuple(Configuration(Vector(1000 * (1 + number)), estimate_us=0) for number in range(3))
    spec = JobSpec(("true",), Vector(1, 1), estimate_us=10 * SECOND, alternatives=others)
    parts = (
        Estimate(1, Source.USER, 20 * SECOND, 2 * SECOND),
        Estimate(1, Source.HISTORY, 20 * SECOND, 2 * SECOND, 5),
        Estimate(2, Source.SAMPLE, detail="it failed", impossible=True),
    )
    assert list(estimates_out(Job(1, spec, "ann", "", 0, estimates=parts))) == [
        job_pb2.ConfigurationEstimate(configuration=0, time=Duration(seconds=10), sources=[job_pb2.ESTIMATE_SOURCE_USER]),
        job_pb2.ConfigurationEstimate(
            configuration=1,
            time=Duration(seconds=20),
            error=Duration(seconds=1, nanos=414_214_000),
            sources=[job_pb2.ESTIMATE_SOURCE_USER, job_pb2.ESTIMATE_SOURCE_HISTORY],
            memory_mib=5,
        ),
        job_pb2.ConfigurationEstimate(configuration=2, detail="it failed", impossible=True),
    ]
