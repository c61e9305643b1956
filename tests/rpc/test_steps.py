"""The steps of runs: who is told, for how long, and what is refused."""

from dataclasses import replace
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration

import client_sdk as sdk
from client_sdk import Client
from scheduler_service.rpc.services.observation_answers import steps_of
from tests.rpc.server import LIMIT, Agent, Server, failure
from tests.store.waiting import wait_for

MOST = 10**15
DECADE = Duration(seconds=316_224_000)


def steps(job_id: int, step: int = 5, **fields: Any) -> job_pb2.RunSteps:
    given = {"run": 1, "state": job_pb2.STEP_STATE_RUNNING, "since_step": Duration(nanos=5000)}
    return job_pb2.RunSteps(job_id=job_id, step=step, **(given | fields))


MUCH: dict[str, Any] = {
    "total": 1000,
    "step_rate": 2.5,
    "step_rate_error": 0.125,
    "step_rate_since_start": 2.25,
    "mini_batch_time": Duration(nanos=375_000_000),
    "mini_batch_spread": Duration(nanos=62_500_000),
    "measured": 149,
    "remaining": Duration(seconds=398),
}


def see(agent: Agent, *seen: job_pb2.RunSteps, **more: Any) -> None:
    agent.send(observations=link_pb.Observations(steps=seen, **more))


def of_job(server: Server, job_id: int) -> list[job_pb2.RunSteps]:
    return list(server.get(job_id).steps)


def node(server: Server) -> Any:
    return server.cluster.GetNode(cluster_pb2.GetNodeRequest(node="n1"), timeout=LIMIT)


# ---- who is told -------------------------------------------------------------------------------------------------------


def test_job_and_node_have_the_last(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    assert of_job(server, job.id) == []
    see(agent, steps(job.id))
    assert wait_for(lambda: of_job(server, job.id), LIMIT) == [steps(job.id)]
    assert list(node(server).observations.steps) == [steps(job.id)]
    assert list(node(server).observations.devices) == [], "as for simulated devices"
    later = steps(job.id, 6, **MUCH)
    see(agent, later)
    wait_for(lambda: of_job(server, job.id) == [later], LIMIT)
    assert list(node(server).observations.steps) == [later]


async def test_the_clients_read_them(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    see(agent, steps(job.id, **MUCH))
    wait_for(lambda: of_job(server, job.id), LIMIT)
    expected = sdk.RunSteps(
        job_id=job.id,
        run=1,
        step=5,
        total=1000,
        since_step=timedelta(microseconds=5),
        step_rate=2.5,
        step_rate_error=0.125,
        step_rate_since_start=2.25,
        mini_batch_time=timedelta(seconds=0.375),
        mini_batch_spread=timedelta(seconds=0.0625),
        measured=149,
        remaining=timedelta(seconds=398),
    )
    with Client(server.address) as client:
        assert client.get(job.id).steps == (expected,)
        assert [each.steps for each in client.list()] == [()]
        seen = client.node("n1").observations
        assert seen is not None
        assert seen.steps == (expected,)
        little = steps(job.id, state=job_pb2.STEP_STATE_STALLED, since_step=Duration(seconds=90))
        see(agent, little)
        wait_for(lambda: of_job(server, job.id) == [little], LIMIT)
        bare = sdk.RunSteps(job_id=job.id, run=1, step=5, state=sdk.StepState.STALLED, since_step=timedelta(seconds=90))
        assert client.get(job.id).steps == (bare,)
    async with sdk.AsyncClient(server.address) as client_:
        assert (await client_.get(job.id)).steps == (bare,)


def test_a_gang_has_those_of_its_tasks_by_rank(server: Server, agent: Agent) -> None:
    resources = job_pb2.Resources(cpu_milli=1000, memory_mib=1)
    gang = server.submit(task_groups=[job_pb2.TaskGroup(count=3, resources=resources)])
    assert len(agent.orders()) == 3
    see(agent, steps(gang.id, 8, task=2), steps(gang.id, 7))
    wait_for(lambda: of_job(server, gang.id), LIMIT)
    assert of_job(server, gang.id) == [steps(gang.id, 7), steps(gang.id, 8, task=2)]


def test_runs_that_are_not_there_are_left_out(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    agent.started(1, job.id)
    assert agent.acknowledged() == 1
    see(agent, steps(job.id, run=2), steps(job.id, task=1), steps(job.id + 1), steps(job.id))
    assert wait_for(lambda: of_job(server, job.id), LIMIT) == [steps(job.id)]
    assert list(node(server).observations.steps) == [steps(job.id)]
    agent.exited(2, job.id)
    assert agent.acknowledged() == 2
    assert of_job(server, job.id) == []
    assert list(node(server).observations.steps) == []


def test_the_last_measurement_of_a_run_can_be_read(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    leading = server.backend.leading
    (run,) = leading.view.runs[job.id]
    assert steps_of(leading, run) is None
    see(agent, steps(job.id, **MUCH))
    wait_for(lambda: steps_of(leading, run), LIMIT)
    assert steps_of(leading, run) == steps(job.id, **MUCH)
    assert steps_of(leading, replace(run, run=2)) is None


# ---- for how long --------------------------------------------------------------------------------------------------------


def test_a_heartbeat_says_that_nothing_is_seen_any_more(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    see(agent, steps(job.id))
    wait_for(lambda: of_job(server, job.id), LIMIT)
    agent.send(heartbeat=link_pb.Heartbeat())
    wait_for(lambda: not node(server).HasField("observations"), LIMIT)
    assert of_job(server, job.id) == []


def test_they_go_with_the_link(server: Server) -> None:
    with Agent(server) as agent:
        agent.connect()
        job = server.submit()
        agent.orders()
        see(agent, steps(job.id))
        wait_for(lambda: of_job(server, job.id), LIMIT)
    wait_for(lambda: of_job(server, job.id) == [], LIMIT)


def test_a_standby_knows_none(server: Server, database_url: str, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    see(agent, steps(job.id))
    wait_for(lambda: of_job(server, job.id), LIMIT)
    with Server(database_url, leads=False) as standby:
        assert standby.get(job.id).id == job.id
        assert of_job(standby, job.id) == []


def test_steps_alone_say_nothing_of_devices(server: Server) -> None:
    """A driver that has not answered yet. Faults stay as Hello told them."""
    lost = [cluster_pb2.Device(index=0, uuid="a"), cluster_pb2.Device(index=1, uuid="b", fault="lost")]
    with Agent(server) as agent:
        del agent.hello.devices[:]
        agent.hello.devices.extend(lost)
        agent.connect()
        job = server.submit()
        agent.orders()
        see(agent, steps(job.id))
        wait_for(lambda: of_job(server, job.id), LIMIT)
        assert [device.fault for device in node(server).node.devices] == ["", "lost"]


def test_a_state_of_a_newer_agent_is_unspecified(server: Server, agent: Agent) -> None:
    """An agent that was upgraded before the scheduler keeps its link."""
    job = server.submit()
    agent.orders()
    see(agent, job_pb2.RunSteps(job_id=job.id, run=1, step=3, state=99))
    wait_for(lambda: of_job(server, job.id), LIMIT)
    (shown,) = of_job(server, job.id)
    assert (shown.step, shown.state) == (3, job_pb2.STEP_STATE_UNSPECIFIED)
    see(agent, job_pb2.RunSteps(job_id=job.id, run=1, step=4, state=job_pb2.STEP_STATE_PARKED))
    wait_for(lambda: [each.step for each in of_job(server, job.id)] == [4], LIMIT)
    assert [each.state for each in of_job(server, job.id)] == [job_pb2.STEP_STATE_PARKED]


# ---- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"step": -1}, "step"),
        ({"step": MOST + 1}, "step"),
        ({"total": 0}, "total"),
        ({"total": MOST + 1}, "total"),
        ({"job_id": 0}, "job_id"),
        ({"run": 0}, "run"),
        ({"task": -1}, "task"),
        ({"state": job_pb2.STEP_STATE_UNSPECIFIED}, "state"),
        ({"measured": -1}, "measured"),
        *(
            ({name: value}, name)
            for name in ("step_rate", "step_rate_error", "step_rate_since_start")
            for value in (-1.0, inf, nan)
        ),
        *(({name: Duration(seconds=-1)}, name) for name in ("since_step", "mini_batch_time", "mini_batch_spread", "remaining")),
        *(
            ({name: Duration(seconds=DECADE.seconds, nanos=1)}, name)
            for name in ("since_step", "mini_batch_time", "mini_batch_spread", "remaining")
        ),
        ({"mini_batch_time": Duration()}, "mini_batch_time"),
    ],
    ids=str,
)
def test_what_cannot_be_ends_the_stream(server: Server, agent: Agent, wrong: dict[str, Any], said: str) -> None:
    see(agent, job_pb2.RunSteps(**({"job_id": 1, "run": 1, "state": job_pb2.STEP_STATE_RUNNING} | wrong)))
    why = failure(lambda: agent.receive("desired_runs"))
    assert why.reason == "INVALID_FIELD"
    assert said in why.text
    assert not node(server).HasField("observations")


def test_more_than_a_node_has_ends_the_stream(server: Server, agent: Agent) -> None:
    see(agent, *(steps(1) for _ in range(4097)))
    assert failure(lambda: agent.receive("desired_runs")).reason == "INVALID_FIELD"


def test_the_extremes_are_taken(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    most = dict.fromkeys(("step_rate", "step_rate_error", "step_rate_since_start"), 1000000000.0)
    longest = dict.fromkeys(("since_step", "mini_batch_time", "mini_batch_spread", "remaining"), DECADE)
    extreme = steps(job.id, MOST, total=MOST, measured=MOST, **most, **longest)
    see(agent, extreme)
    assert wait_for(lambda: of_job(server, job.id), LIMIT) == [extreme]
