"""What users and operators ask of live jobs and nodes, over gRPC: what it does, and what it is refused with."""

from collections.abc import Collection
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from tests.rpc.server import LIMIT, USER, Agent, Server, failure, submit_request
from tests.store.waiting import wait_for

DEVICE = {"cpu_milli": 1000, "devices": 2}
CALLS = ("Cancel", "Suspend", "Resume", "Hold", "Release", "Requeue", "Update")
AFTER_OK, AFTER_ANY = job_pb2.DEPENDENCY_KIND_AFTER_OK, job_pb2.DEPENDENCY_KIND_AFTER_ANY


def ask(server: Server, call: str, job_id: int, **fields: Any) -> Any:
    request = getattr(scheduler_pb2, f"{call}Request")(job_id=job_id, **fields)
    return getattr(server.scheduler, call)(request, timeout=LIMIT).job


def node(server: Server, call: str, name: str = "n1", **fields: Any) -> Any:
    request = getattr(cluster_pb2, f"{call}Request")(node=name, **fields)
    return getattr(server.cluster, call)(request, timeout=LIMIT).node


def running(server: Server, agent: Agent, sequence: int = 1, **spec: Any) -> Any:
    job = server.submit(**spec)
    agent.orders()
    agent.started(sequence, job.id)
    assert agent.acknowledged() == sequence
    return server.until(job.id, "RUNNING")


def state(job: Any) -> str:
    return str(job_pb2.JobState.Name(job.state)).removeprefix("JOB_STATE_")


def reason(job: Any) -> str:
    return str(job_pb2.JobReason.Name(job.reason)).removeprefix("JOB_REASON_")


def test_suspend_and_resume(server: Server, agent: Agent) -> None:
    job = running(server, agent, grace_period=Duration(seconds=7))
    told = ask(server, "Suspend", job.id)
    assert (state(told), reason(told), told.suspend_requested) == ("STOPPING", "SUSPENDED", True)
    (order,) = agent.orders()
    assert (order.stopped.grace_period.seconds, order.stopped.reason) == (7, 4)
    agent.exited(2, job.id, exit_code=143, yielded=True)
    aside = server.until(job.id, "SUSPENDED")
    assert aside.preempted_for_trial == 0
    assert server.nodes()[0].free.cpu_milli == 8000, "its resources are free"
    assert agent.acknowledged() == 2
    back = ask(server, "Resume", job.id)
    assert back.run == 2 or reason(back) == "RESUMED"
    (order,) = agent.orders()
    assert (order.job_id, order.run, order.WhichOneof("state")) == (job.id, 2, "running")


def test_requeue_and_update(server: Server, agent: Agent) -> None:
    job = running(server, agent)
    changed = ask(server, "Update", job.id, priority=5, time_limit=Duration(seconds=3600))
    assert (changed.priority, changed.time_limit.seconds, changed.spec.priority) == (5, 3600, 0)
    assert ask(server, "Update", job.id, time_limit=Duration()).HasField("time_limit") is False
    assert state(ask(server, "Requeue", job.id)) == "STOPPING"
    (order,) = agent.orders()
    assert order.stopped.reason == 5
    agent.exited(2, job.id, exit_signal=15)
    (order,) = [order for _ in range(2) for order in next_orders(agent)]
    assert order.run == 2
    assert state(ask(server, "Requeue", job.id, run=1)) == "STARTING", "a repetition leaves the next run alone"


def test_hold_and_release(server: Server) -> None:
    job = server.submit()
    held = ask(server, "Hold", job.id)
    assert (held.held, reason(held)) == (True, "HELD")
    assert ask(server, "Hold", job.id).held
    with Agent(server) as late:
        late.connect()
        assert state(server.get(job.id)) == "QUEUED"
        assert not ask(server, "Release", job.id).held
        (order,) = late.orders()
        assert order.job_id == job.id


@pytest.mark.parametrize("call", [c for c in CALLS if c != "Cancel"])
def test_of_a_job_that_has_ended_nothing_is_asked(server: Server, call: str) -> None:
    job = server.submit()
    server.cancel(job.id)
    said = failure(lambda: ask(server, call, job.id))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "JOB_ENDED")
    assert dict(said.info.metadata) == {"job_id": str(job.id), "state": "CANCELLED"}


@pytest.mark.parametrize("call", CALLS)
def test_of_a_job_that_never_was_nothing_is_asked(server: Server, call: str) -> None:
    said = failure(lambda: ask(server, call, 99))
    assert (said.code, said.reason) == (grpc.StatusCode.NOT_FOUND, "NO_SUCH_JOB")


@pytest.mark.parametrize("call", ["Suspend", "Resume", "Requeue"])
def test_a_queued_job_is_not_suspended(server: Server, call: str) -> None:
    job = server.submit()
    said = failure(lambda: ask(server, call, job.id))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE")
    assert said.info.metadata["state"] == "QUEUED"
    assert "QUEUED" in said.text


def depends(*on: tuple[int, int]) -> list[Any]:
    return [job_pb2.Dependency(job_id=job_id, kind=kind) for job_id, kind in on]  # type: ignore[arg-type]


def test_dependencies_on_jobs_that_have_ended_are_looked_up(server: Server) -> None:
    gone = server.submit()
    server.cancel(gone.id)
    assert reason(server.submit(dependencies=depends((gone.id, AFTER_ANY)))) != "DEPENDENCY"
    said = failure(lambda: server.submit(dependencies=depends((gone.id, AFTER_OK))))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "DEPENDENCY_NEVER")
    said = failure(lambda: server.submit(dependencies=depends((99, AFTER_OK))))
    assert (said.code, said.reason) == (grpc.StatusCode.NOT_FOUND, "NO_SUCH_JOB")


def test_a_dependency_that_ends_while_another_is_looked_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, going = server.submit(), server.submit()
    server.cancel(gone.id)
    reader = server.backend.reader
    looked_up: list[list[int]] = []

    def find_ends(jobs: Collection[int], real: Any = reader.find_ends) -> Any:
        looked_up.append(sorted(jobs))
        server.cancel(going.id)
        return real(jobs)

    monkeypatch.setattr(reader, "find_ends", find_ends)
    waits = server.submit(dependencies=depends((gone.id, AFTER_ANY), (going.id, AFTER_ANY)))
    assert reason(waits) != "DEPENDENCY"
    assert looked_up == [[gone.id], [going.id]]
    said = failure(lambda: server.submit(dependencies=depends((gone.id, AFTER_ANY), (99, AFTER_OK))))
    assert (said.reason, said.info.metadata["job_id"]) == ("NO_SUCH_JOB", "99")


def test_a_submit_that_would_be_refused_now_is_the_job_that_it_was(server: Server) -> None:
    """What it waited for has failed, and it with that: whose answer was lost is told of the job, and of no refusal."""
    going = server.submit()
    waits = server.submit(request_id="once", dependencies=depends((going.id, AFTER_OK)))
    server.cancel(going.id)
    told = server.submit(request_id="once", dependencies=depends((going.id, AFTER_OK)))
    assert (told.id, told.state) == (waits.id, job_pb2.JOB_STATE_CANCELLED)
    said = failure(lambda: server.submit(request_id="once", cpu_milli=2000, dependencies=depends((going.id, AFTER_OK))))
    assert said.reason == "REQUEST_ID_REUSED"
    said = failure(lambda: server.submit(request_id="other", dependencies=depends((going.id, AFTER_OK))))
    assert said.reason == "DEPENDENCY_NEVER"


def test_a_job_cannot_wait_for_itself(server: Server) -> None:
    first = server.submit()
    second = server.submit(dependencies=depends((first.id, AFTER_OK)))
    assert (reason(second), second.cause_job_id) == ("DEPENDENCY", first.id)
    circle = scheduler_pb2.Dependencies(dependencies=depends((second.id, AFTER_OK)))
    said = failure(lambda: ask(server, "Update", first.id, dependencies=circle))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "DEPENDENCY_CYCLE")
    assert reason(ask(server, "Update", second.id, dependencies=scheduler_pb2.Dependencies())) != "DEPENDENCY"


def gang(count: int, **resources: int) -> list[Any]:
    return [job_pb2.TaskGroup(count=count, resources=job_pb2.Resources(**resources))]


def test_a_gang_that_can_never_run_is_refused(server: Server, agent: Agent) -> None:
    said = failure(lambda: server.submit(task_groups=gang(3, devices=1)))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CLUSTER_TOO_SMALL")
    said = failure(lambda: server.submit(task_groups=gang(1, devices=3)))
    assert said.reason == "NO_NODE_LARGE_ENOUGH"
    said = failure(lambda: server.submit(task_groups=gang(4096) + gang(1)))
    assert (said.code, said.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "spec.task_groups")


def test_a_gang_prepares_and_begins(server: Server, agent: Agent) -> None:
    job = server.submit(
        task_groups=[*gang(1, devices=1), job_pb2.TaskGroup(count=1, resources=job_pb2.Resources(cpu_milli=1), command=["b"])]
    )
    orders = sorted(agent.orders(), key=lambda order: order.task)
    assert [order.prepared.gang.rank for order in orders] == [0, 1]
    assert [(order.WhichOneof("state"), order.generation) for order in orders] == [("prepared", 1)] * 2
    gangs = [order.prepared.gang for order in orders]
    assert [(gang.world_size, gang.local_rank, list(gang.nodes)) for gang in gangs] == [(2, 0, ["n1"]), (2, 1, ["n1"])]
    assert [list(order.prepared.spec.command) for order in orders] == [["true"], ["b"]]
    for task in (0, 1):
        agent.ready(task + 1, job.id, task, address="10.0.0.1", port=4000 + task)
    begun: list[Any] = []
    while len(begun) < 2:  # two acknowledgements, or one for both, come between
        begun += next_orders(agent)
    assert {(o.task, o.generation, o.running.gang.master_address, o.running.gang.master_port) for o in begun} == {
        (0, 2, "10.0.0.1", 4000),
        (1, 2, "10.0.0.1", 4000),
    }
    shown = server.get(job.id)
    assert [(task.rank, task.node, list(task.devices)) for task in shown.tasks] == [(0, "n1", [0]), (1, "n1", [])]


def next_orders(agent: Agent) -> list[Any]:
    """Of the next message; none where it is an acknowledgement."""
    message = next(agent.call)
    return list(message.desired_runs.runs)


def test_an_array_is_one_row_until_its_elements_start(server: Server, agent: Agent) -> None:
    array = server.submit(cpu_milli=4000, array=job_pb2.Array(size=10_000))
    shown = server.get(array.id)
    assert (shown.array.size, shown.array.pending, shown.array.live) == (10_000, 9_998, 2)
    orders = agent.orders()
    assert [order.running.array_index for order in orders] == [0, 1]
    agent.exited(1, orders[0].job_id)
    assert [order.running.array_index for _ in range(2) for order in next_orders(agent)] == [2]
    element = server.get(orders[0].job_id)
    assert (state(element), element.array_job_id, element.array_index) == ("SUCCEEDED", array.id, 0)
    server.cancel(array.id)
    assert state(server.get(array.id)) == "STOPPING"


def test_explain_names_what_is_in_the_way(server: Server, agent: Agent) -> None:
    first = running(server, agent, time_limit=Duration(seconds=100), **DEVICE)
    second = server.submit(**DEVICE)
    third = server.submit(**DEVICE)
    said = server.scheduler.Explain(scheduler_pb2.ExplainRequest(job_id=second.id), timeout=LIMIT).explanation
    (blocker,) = said.blockers
    assert reason(blocker) == "NO_ROOM"
    assert (blocker.need.devices, blocker.node, blocker.free.devices) == (2, "n1", 0)
    assert (blocker.nodes, blocker.nodes_usable, blocker.nodes_large_enough) == (1, 1, 1)
    assert said.estimate.time.seconds == pytest.approx(first.start_time.seconds + 100, abs=2)
    said = server.scheduler.Explain(scheduler_pb2.ExplainRequest(job_id=third.id), timeout=LIMIT).explanation
    assert ([reason(b) for b in said.blockers], said.ahead, list(said.ahead_job_ids)) == (["BEHIND", "NO_ROOM"], 1, [second.id])
    said = failure(lambda: server.scheduler.Explain(scheduler_pb2.ExplainRequest(job_id=99), timeout=LIMIT))
    assert said.reason == "NO_SUCH_JOB"


def test_validate_only_says_what_would_happen_and_keeps_nothing(server: Server, agent: Agent) -> None:
    def preview(**spec: Any) -> Any:
        request = submit_request(**spec)
        request.validate_only = True
        return server.scheduler.Submit(request, timeout=LIMIT)

    said = preview(**DEVICE)
    assert (said.job.id, said.preview.starts, [list(t.devices) for t in said.preview.tasks]) == (0, True, [[0, 1]])
    victim = running(server, agent, **DEVICE)
    trial = preview(job_class=job_pb2.JOB_CLASS_TRIAL, **DEVICE)
    assert [(v.job_id, v.user, v.node) for v in trial.preview.victims] == [(victim.id, USER, "n1")]
    waits = preview(**DEVICE)
    assert [reason(b) for b in waits.preview.explanation.blockers] == ["NO_ROOM"]
    assert failure(lambda: preview(devices=3)).reason == "NO_NODE_LARGE_ENOUGH"
    assert state(server.get(victim.id)) == "RUNNING"
    assert [job.id for job in server.scheduler.List(scheduler_pb2.ListRequest(), timeout=LIMIT).jobs] == [victim.id]


def test_drain_and_undrain(server: Server, agent: Agent) -> None:
    job = running(server, agent)
    drained = node(server, "Drain", reason="new fans", evict=True)
    assert (drained.drain.reason, drained.drain.user) == ("new fans", USER)
    assert agent.orders()[0].stopped.reason == 8
    agent.exited(2, job.id, exit_signal=15)
    assert agent.acknowledged() == 2
    assert state(server.get(job.id)) == "QUEUED"
    assert not node(server, "Undrain").HasField("drain")
    assert agent.orders()[0].run == 2
    assert node(server, "GetNode").name == "n1"


@pytest.mark.parametrize("call", ["GetNode", "Drain", "Undrain", "Fence", "DeleteNode"])
def test_an_unknown_node(server: Server, call: str) -> None:
    said = failure(lambda: node(server, call, "n9"))
    assert (said.code, said.reason, said.info.metadata["node"]) == (grpc.StatusCode.NOT_FOUND, "NO_SUCH_NODE", "n9")


def test_only_a_silent_node_is_declared_dead(database_url: str) -> None:
    with Server(database_url, silent_after=0.6, heartbeat=0.2) as server:
        with Agent(server) as agent:
            agent.connect()
            said = failure(lambda: node(server, "Fence"))
            assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NODE_UP")
            job = running(server, agent)
        wait_for(lambda: state(server.get(job.id)) == "UNREACHABLE", LIMIT)
        node(server, "Fence")
        shown = server.get(job.id)
        assert (state(shown), reason(shown)) == ("QUEUED", "NODE_LOST")


def test_a_node_that_will_not_come_back_is_deleted(database_url: str) -> None:
    with Server(database_url, silent_after=0.6, heartbeat=0.2) as server:
        with Agent(server) as agent:
            agent.connect()
            said = failure(lambda: node(server, "DeleteNode"))
            assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NODE_UP")
            job = running(server, agent)
        wait_for(lambda: state(server.get(job.id)) == "UNREACHABLE", LIMIT)
        said = failure(lambda: node(server, "DeleteNode"))
        assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NODE_IN_USE")
        assert said.info.metadata["node"] == "n1"
        assert "`ebb node fence n1`" in said.text
        node(server, "Fence")
        delete(server)
        delete(server)
        assert not server.cluster.ListNodes(cluster_pb2.ListNodesRequest(), timeout=LIMIT).nodes
        assert failure(lambda: node(server, "GetNode")).reason == "NO_SUCH_NODE"
        assert next(iter(server.get(job.id).tasks)).node == "n1", "where it ran is still told"
    with Server(database_url) as server:  # and so it is after a restart
        assert not server.cluster.ListNodes(cluster_pb2.ListNodesRequest(), timeout=LIMIT).nodes
        assert next(iter(server.get(job.id).tasks)).node == "n1"
        with Agent(server) as agent:
            agent.connect()
            assert node(server, "GetNode").name == "n1"
            assert agent.orders()[0].run == 2


def delete(server: Server) -> None:
    server.cluster.DeleteNode(cluster_pb2.DeleteNodeRequest(node="n1"), timeout=LIMIT)


def test_a_job_is_parked_and_resumed(server: Server, agent: Agent) -> None:
    job = running(server, agent, **DEVICE)
    told = ask(server, "Suspend", job.id, park=True)
    assert (state(told), reason(told), told.suspend_requested, told.parked) == ("STOPPING", "PARKED", True, False)
    assert told.operation.phase == job_pb2.OPERATION_PHASE_PARKING
    (order,) = agent.orders()
    assert (order.generation, order.parked.time_limit.seconds, list(order.parked.launch.devices)) == (2, 60, [0, 1])
    agent.send_report(parked(2, job.id))
    aside = server.until(job.id, "SUSPENDED")
    assert (reason(aside), aside.parked, list(aside.devices)) == ("PARKED", True, [0, 1])
    assert server.nodes()[0].free.devices == 2, "its devices are free"
    (blocker,) = server.scheduler.Explain(scheduler_pb2.ExplainRequest(job_id=job.id), timeout=LIMIT).explanation.blockers
    assert "it is parked and does not go on by itself" in blocker.detail
    assert agent.acknowledged() == 2
    back = ask(server, "Resume", job.id)
    assert (state(back), reason(back), back.run) == ("STARTING", "RESUMED", 1)
    (order,) = agent.orders()
    assert (order.generation, order.WhichOneof("state")) == (3, "running")
    report = link_pb.Report(sequence=3, job_id=job.id, run=1, resumed=link_pb.RunResumed(rung="driver"))
    report.resumed.phases["restore"].nanos = 250_000_000
    agent.send_report(report)
    assert not server.until(job.id, "RUNNING").HasField("operation")
    (run,) = server.scheduler.ListRuns(scheduler_pb2.ListRunsRequest(job_id=job.id), timeout=LIMIT).runs
    assert (run.phase, run.parks, run.node, list(run.devices)) == (job_pb2.RUN_PHASE_RUNNING, 1, "n1", [0, 1])
    assert [(each.phase, each.detail) for each in run.operations] == [
        (1, "driver, 512 MiB, residue 3 MiB, checkpoint 0.125 s"),
        (2, ""),
        (3, ""),
        (4, "restore 0.250 s"),
    ]


def parked(sequence: int, job_id: int) -> Any:
    report = link_pb.Report(sequence=sequence, job_id=job_id, run=1)
    report.parked.CopyFrom(link_pb.RunParked(rung="driver", bytes=512 << 20, residue_bytes=3 << 20))
    report.parked.phases["checkpoint"].nanos = 125_000_000
    return report


def test_who_has_the_devices_of_a_parked_job_is_told(server: Server, agent: Agent) -> None:
    first = running(server, agent, **DEVICE)
    ask(server, "Suspend", first.id, park=True)
    agent.orders()
    agent.send_report(parked(2, first.id))
    server.until(first.id, "SUSPENDED")
    other = server.submit(**DEVICE)
    waiting = ask(server, "Resume", first.id)
    assert (state(waiting), reason(waiting), waiting.operation.phase) == ("SUSPENDED", "RESUMED", 3)
    blockers = server.scheduler.Explain(scheduler_pb2.ExplainRequest(job_id=first.id), timeout=LIMIT).explanation.blockers
    assert {blocker.cause_job_id for blocker in blockers} == {other.id}
    assert blockers[0].detail == f"it resumes on its own devices: job {other.id} has device 0 of node n1"


def test_what_cannot_be_parked_is_refused_or_suspended(server: Server, agent: Agent) -> None:
    job = running(server, agent)
    said = failure(lambda: ask(server, "Suspend", job.id, park_only=True))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CANNOT_PARK")
    assert "has no devices" in said.text
    assert reason(ask(server, "Suspend", job.id, park=True)) == "SUSPENDED"


def test_a_refused_park_is_in_the_story(server: Server, agent: Agent) -> None:
    job = running(server, agent, **DEVICE)
    ask(server, "Suspend", job.id, park_only=True)
    agent.orders()
    refused = link_pb.RunParkRefused(reason="a step takes longer than 60 s")
    agent.send_report(link_pb.Report(sequence=2, job_id=job.id, run=1, park_refused=refused))
    server.until(job.id, "RUNNING")
    events = server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job.id), timeout=LIMIT).events
    assert events[-1].text == "not parked: a step takes longer than 60 s; it goes on"


def test_runs_are_listed_page_by_page(server: Server, agent: Agent) -> None:
    job = running(server, agent)
    ask(server, "Requeue", job.id)
    agent.orders()
    agent.exited(2, job.id, exit_code=143, yielded=True)
    agent.orders()

    def page(token: str = "") -> Any:
        request = scheduler_pb2.ListRunsRequest(job_id=job.id, page_size=1, page_token=token)
        return server.scheduler.ListRuns(request, timeout=LIMIT)

    first = page()
    second = page(first.next_page_token)
    assert [run.run for answer in (first, second) for run in answer.runs] == [2, 1]
    (old,) = second.runs
    assert (old.saved, job_pb2.JobReason.Name(old.stop_reason), second.next_page_token) == (True, "JOB_REASON_REQUEUED", "")
    said = failure(lambda: server.scheduler.ListRuns(scheduler_pb2.ListRunsRequest(job_id=99), timeout=LIMIT))
    assert said.code is grpc.StatusCode.NOT_FOUND
