"""A gang of which one task executes and another one does not starts again, once what agents report shows it."""

from typing import Any

from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from scheduler_service.run.partially_parked_gangs import TORN_US
from tests.rpc.server import LIMIT, Agent, Server

REQUEUE_REQUESTED = job_pb2.JOB_EVENT_KIND_REQUEUE_REQUESTED


def test_it_leaves_and_its_story_says_which_task_did_not_execute(server: Server) -> None:
    with Agent(server, "n1") as first, Agent(server, "n2") as second:
        for agent in (first, second):
            agent.connect()
        resources = job_pb2.Resources(cpu_milli=1, devices=2)
        job = server.submit(task_groups=[job_pb2.TaskGroup(count=2, resources=resources)])
        for task, agent in enumerate((first, second)):
            agent.orders()
            agent.ready(1, job.id, task, address="10.0.0.1", port=4000)
        for task, agent in enumerate((first, second)):
            assert orders_of(agent) == ["running"]
            started = link_pb.RunStarted(pid=1, log_path="/log")
            agent.send_report(link_pb.Report(sequence=2, job_id=job.id, run=1, task=task, started=started))
        server.until(job.id, "RUNNING")
        see(first, job.id, 0, 0)
        see(second, job.id, 1, 0)
        see(first, job.id, 0, TORN_US)
        assert [orders_of(agent) for agent in (first, second)] == [["stopped"], ["stopped"]]
        events = server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job.id), timeout=LIMIT).events
        (asked,) = (event for event in events if event.kind == REQUEUE_REQUESTED)
        assert asked.text == "task 1 on n2 did not execute for 180 s while other tasks of its gang did"


def orders_of(agent: Agent) -> list[Any]:
    """What is ordered next. Acknowledgements come between."""
    while not (found := [order.WhichOneof("state") for order in next(agent.call).desired_runs.runs]):
        pass
    return found


def see(agent: Agent, job: int, task: int, executed_us: int) -> None:
    part = link_pb.SliceObservation(job_id=job, run=1, task=task, executed=Duration(seconds=executed_us // 1_000_000))
    agent.send(observations=link_pb.Observations(slices=[part]))
