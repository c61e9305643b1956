"""ebb.agent.v1.AgentLink: who may connect, what is acknowledged and when, and what an agent is told that comes back."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import Connection, text

from scheduler_service.core.messages import RunExited
from scheduler_service.rpc.convert.agents import report_in
from scheduler_service.rpc.services import agent_link
from scheduler_service.store import SKIPPED
from tests.rpc.server import USER, Agent, Failure, Server, failure
from tests.store.waiting import wait_for

Hold = Callable[[], AbstractContextManager[Callable[[], None]]]


def known(job_id: int, phase: "link_pb.RunPhase", run: int = 1) -> Any:
    return link_pb.RunStatus(job_id=job_id, run=run, phase=phase)


def devices_of(*uuids: str, **device: Any) -> list[Any]:
    return [cluster_pb2.Device(index=index, uuid=uuid, **device) for index, uuid in enumerate(uuids)]


# ---- hello -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hello", "reason", "said"),
    [
        ({"node": "-n"}, "INVALID_FIELD", "node"),
        ({"boot": ""}, "INVALID_FIELD", "boot_id"),
        ({"capacity": None}, "INVALID_FIELD", "capacity"),
        ({"epoch": -1}, "INVALID_FIELD", "epoch"),
        ({"devices": [cluster_pb2.Device(index=1), cluster_pb2.Device(index=0)]}, "DEVICES", "numbered 0, 1"),
        ({"capacity": job_pb2.Resources(devices=3)}, "DEVICES", "agree with its capacity"),
        ({"capacity": job_pb2.Resources(memory_mib=1, devices=2)}, "CAPACITY", "must have memory, and CPUs"),
        ({"capacity": job_pb2.Resources(cpu_milli=1, devices=2)}, "CAPACITY", "must have memory, and CPUs"),
        ({"capacity": job_pb2.Resources(cpu_milli=4_096_001, memory_mib=1, devices=2)}, "CAPACITY", "at most 4096"),
        ({"devices": devices_of("u", "v", "u")}, "DEVICES", "devices 0, 2 have the same UUID 'u'"),
        ({"levels": ["switch"]}, "DEVICES", "the path [] of device 0 must have one number for each of the node's 1 levels"),
        ({"devices": devices_of("u", "v", path=[0])}, "DEVICES", "the path [0] of device 0 must have one number"),
        ({"levels": ["switch"], "devices": devices_of("u", "v", path=[-1])}, "INVALID_FIELD", "devices[0].path"),
        ({"levels": ["switch", "switch"]}, "INVALID_FIELD", "levels"),
        ({"levels": [""]}, "INVALID_FIELD", "levels"),
        ({"levels": ["node"], "devices": devices_of("u", "v", path=[0])}, "DEVICES", "a level is named 'node'"),
        ({"devices": devices_of("u", "v", memory_mib=2**63 - 1)}, "INVALID_FIELD", "devices[0].memory_mib"),
        ({"cluster_id": "c" * 1_000_000}, "INVALID_FIELD", "cluster_id"),
        ({"epoch": 2**63 - 1}, "INVALID_FIELD", "epoch"),
        ({"cluster_id": "another"}, "OTHER_CLUSTER", "belongs to cluster another"),
        (
            {"epoch": 99},
            "EPOCH_UNKNOWN",
            "says that it has obeyed epoch 99, and this scheduler leads in epoch 1, but does not show",
        ),
    ],
)
def test_who_is_turned_away(server: Server, hello: dict[str, Any], reason: str, said: str) -> None:
    devices = hello.pop("devices", None)
    with Agent(server, **hello) as agent:
        if devices is not None:
            del agent.hello.devices[:]
            agent.hello.devices.extend(devices)
            if "capacity" not in hello:
                agent.hello.capacity.devices = len(devices)
        why = failure(agent.connect)
        assert why.reason == reason
        assert said in why.text
        fence = reason in ("OTHER_CLUSTER", "EPOCH_UNKNOWN")
        assert why.code is (grpc.StatusCode.FAILED_PRECONDITION if fence else grpc.StatusCode.INVALID_ARGUMENT)
    assert list(server.nodes()) == []


def test_hello_comes_first(server: Server) -> None:
    with Agent(server) as agent:
        agent.send(heartbeat=link_pb.Heartbeat())
        assert failure(lambda: agent.receive("welcome")).reason == "HELLO_FIRST"


def test_who_says_nothing_is_sent_away_and_is_no_fault_of_the_scheduler(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_link, "HELLO_LIMIT", 0.05)
    with Agent(server) as agent:
        assert failure(lambda: agent.receive("welcome")).reason == "HELLO_FIRST"
    assert "a call failed" not in caplog.text


def test_welcome_and_what_becomes_of_the_node(server: Server) -> None:
    with Agent(server, agent_version="1.2") as agent:
        welcome = agent.connect()
        (node,) = server.nodes()
    assert (welcome.cluster_id, welcome.epoch) == (server.backend.leading.cluster_id, 1)
    assert welcome.configuration.heartbeat_interval == Duration(seconds=2)
    assert welcome.acknowledged == 0
    assert (node.name, node.state, node.agent_version) == ("n1", cluster_pb2.NODE_STATE_UP, "1.2")
    assert [device.uuid for device in node.devices] == ["n1-0", "n1-1"]


def test_an_agent_is_told_of_another_configuration_while_it_is_connected(server: Server, agent: Agent) -> None:
    server.backend.heartbeat_seconds = 0.5
    with Agent(server, node="n2") as other:
        assert other.connect().configuration.heartbeat_interval == Duration(nanos=500_000_000)
        assert agent.receive("configuration").heartbeat_interval == Duration(nanos=500_000_000)


def test_other_devices_while_runs_hold_them(server: Server, agent: Agent) -> None:
    server.submit(devices=1)
    with Agent(server, devices=4) as changed:
        assert failure(changed.connect).reason == "INVENTORY_CHANGED"
    with Agent(server) as same:
        assert same.connect().acknowledged == 0


# ---- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [{}, {"job_fault": True}])
def test_a_failed_launch_says_whose_fault_it_is(fault: dict[str, bool]) -> None:
    """Agents that are older say nothing of it: then it is the node's, as it was."""
    exited = link_pb.RunExited(launch_error="no such file", **fault)
    message = link_pb.Report(sequence=1, job_id=7, run=1, exited=exited)
    read = report_in(link_pb.Report.FromString(message.SerializeToString()), "n1", "boot-1")
    assert isinstance(read, RunExited)
    assert (read.launch_error, read.job_fault) == ("no such file", bool(fault))


def test_orders_go_down_and_reports_up(server: Server, agent: Agent) -> None:
    job = server.submit(command=["a", "b"], devices=2, name="x", environment={"K": "v"})
    (order,) = agent.orders()
    assert (order.job_id, order.run, list(order.running.devices)) == (job.id, 1, [0, 1])
    assert (list(order.running.spec.command), dict(order.running.spec.environment)) == (["a", "b"], {"K": "v"})
    agent.started(1, job.id)
    assert agent.acknowledged() == 1
    running = server.get(job.id)
    assert (running.state, running.node, running.log_path) == (job_pb2.JOB_STATE_RUNNING, "n1", "/log")
    agent.exited(2, job.id, exit_code=3)
    assert agent.acknowledged() == 2
    ended = server.get(job.id)
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 3)


def test_a_report_is_acknowledged_when_it_is_committed(
    server: Server, agent: Agent, conn: Connection, commits_kept_out: Hold
) -> None:
    job = server.submit()
    agent.orders()
    started = text("SELECT started_us FROM run WHERE job_id = :job")
    told: list[Any] = []
    agent.call.add_done_callback(told.append)
    with commits_kept_out() as until_one_waits:
        agent.started(1, job.id)
        until_one_waits()
        assert server.get(job.id).state == job_pb2.JOB_STATE_STARTING  # nor do readers see it
        agent.send(heartbeat=link_pb.Heartbeat())
        assert conn.execute(started, {"job": job.id}).scalar() is None
        conn.rollback()
    assert agent.acknowledged() == 1
    assert conn.execute(started, {"job": job.id}).scalar() is not None
    assert told == []


def test_repeats_count_once_and_a_gap_ends_the_stream(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    for _ in range(2):
        agent.started(1, job.id)
        assert agent.acknowledged() == 1
    agent.exited(3, job.id)
    ended = agent.ended()
    assert ended is not None
    assert (ended.code, ended.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "REPORT_GAP")
    assert server.get(job.id).state == job_pb2.JOB_STATE_RUNNING
    with Agent(server, runs=[known(job.id, link_pb.RUN_PHASE_ENDED)]) as again:
        assert again.connect().acknowledged == 1
        again.exited(2, job.id)
        assert again.acknowledged() == 2
    assert server.get(job.id).state == job_pb2.JOB_STATE_SUCCEEDED


def test_reports_about_what_is_over_or_elsewhere_change_nothing(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    with Agent(server, node="n2") as other:
        other.connect()
        other.exited(1, job.id)  # it runs on n1
        assert other.acknowledged() == 1
        other.exited(2, 999)
        assert other.acknowledged() == 2
    agent.started(1, job.id, run=2)  # there is no second run
    assert agent.acknowledged() == 1
    assert server.get(job.id).state == job_pb2.JOB_STATE_STARTING


def test_a_faulty_report_ends_the_stream(server: Server, agent: Agent) -> None:
    agent.send_report(link_pb.Report(sequence=0, job_id=1, run=1, started=link_pb.RunStarted()))
    ended = agent.ended()
    assert ended is not None
    assert (ended.code, ended.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "reports[0].sequence")


# ---- coming back -------------------------------------------------------------------------------------------------------


def test_the_same_boot_again(server: Server, agent: Agent) -> None:
    """The old stream ends; what is to hold is told again: starts that are not known, stops, and runs that nobody claims."""
    unknown, running, stopping = (server.submit(cpu_milli=100) for _ in range(3))
    for _ in range(3):
        agent.orders()
    agent.started(1, running.id)
    assert agent.acknowledged() == 1
    agent.started(2, stopping.id)
    assert agent.acknowledged() == 2
    server.cancel(stopping.id)
    (stop,) = agent.orders()
    assert (stop.stopped.reason, stop.stopped.grace_period) == (link_pb.STOP_REASON_CANCELLED, Duration(seconds=30))
    runs = [known(running.id, link_pb.RUN_PHASE_RUNNING), known(stopping.id, link_pb.RUN_PHASE_RUNNING)]
    stray = known(77, link_pb.RUN_PHASE_RUNNING)
    with Agent(server, runs=[*runs, stray]) as again:
        assert again.connect().acknowledged == 2
        told = {(o.job_id, o.WhichOneof("state"), o.stopped.reason) for o in again.orders()}
        assert told == {
            (unknown.id, "running", link_pb.STOP_REASON_UNSPECIFIED),
            (stopping.id, "stopped", link_pb.STOP_REASON_CANCELLED),
            (77, "stopped", link_pb.STOP_REASON_UNCLAIMED),
        }
        replaced = agent.ended()
        assert replaced is not None
        assert replaced.reason == "LINK_ENDED"
        again.exited(3, stopping.id, exit_signal=15)
        assert again.acknowledged() == 3
    assert server.get(running.id).state == job_pb2.JOB_STATE_RUNNING


def test_an_agent_that_has_heard_more_than_the_database_knows_is_outdone(server: Server, agent: Agent) -> None:
    """As after a restore from a backup: it would take the next order for an old one."""
    job = server.submit()
    (order,) = agent.orders()
    assert order.generation == 1
    agent.started(1, job.id)
    assert agent.acknowledged() == 1
    heard = link_pb.RunStatus(job_id=job.id, run=1, phase=link_pb.RUN_PHASE_RUNNING, generation=9)
    with Agent(server, runs=[heard]) as again:
        again.connect()
        server.cancel(job.id)
        (stop,) = again.orders()
        assert (stop.WhichOneof("state"), stop.generation) == ("stopped", 11)


def test_an_agent_that_does_not_read_is_told_that_its_link_ended(server: Server, agent: Agent) -> None:
    """It is ended in the middle of a write."""
    large = {f"V{i}": "x" * 30_000 for i in range(4)}
    for _ in range(100):
        server.submit(cpu_milli=1, environment=large)
    with Agent(server) as again:
        again.connect()
        with pytest.raises(grpc.RpcError) as ended:
            list(agent.call)
        assert Failure(ended.value).reason == "LINK_ENDED"


def test_another_boot(server: Server, agent: Agent) -> None:
    """The runs of the boot before are gone, and their jobs go back to the queue; that boot is not heard any more."""
    job = server.submit(devices=1)
    agent.orders()
    agent.started(1, job.id)
    assert agent.acknowledged() == 1
    agent.hang_up()
    with Agent(server, boot="boot-2") as rebooted:
        assert rebooted.connect().acknowledged == 0
        (order,) = rebooted.orders()
        assert (order.job_id, order.run, order.WhichOneof("state")) == (job.id, 2, "running")
        rebooted.started(1, job.id, run=2)
        assert rebooted.acknowledged() == 1
    assert server.get(job.id).run == 2


def test_two_agents_by_one_name(server: Server, agent: Agent) -> None:
    """The second, of another boot, would take the first one's runs for lost: it is refused while the first is alive."""
    job = server.submit(devices=1)
    agent.orders()
    with Agent(server, boot="boot-2") as twin:
        twin.send(hello=twin.hello)
        refused = twin.ended()
        assert refused is not None
        assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NODE_CONNECTED")
    agent.started(1, job.id)
    assert agent.acknowledged() == 1
    assert server.get(job.id).run == 1


def test_of_two_agents_with_one_state_the_first_stays_and_the_second_is_told_why(server: Server) -> None:
    with Agent(server, instance="one") as first:
        first.connect()
        job = server.submit(devices=1)
        first.orders()
        for _ in range(3):
            with Agent(server, instance="two") as second:
                why = failure(second.connect)
                assert (why.code, why.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NODE_CONNECTED")
                assert "another agent of node n1 with a copy of the same state directory is connected from ipv4:127" in why.text
        first.started(1, job.id)
        assert first.acknowledged() == 1
        with Agent(server, instance="one", runs=[known(job.id, link_pb.RUN_PHASE_RUNNING)]) as again:
            assert again.connect().acknowledged == 1, "its own agent may connect again before the old link is known to be dead"
            assert getattr(first.ended(), "reason", None) == "LINK_ENDED"
            again.hang_up()
    with Agent(server, instance="two", runs=[known(job.id, link_pb.RUN_PHASE_RUNNING)]) as successor:
        assert successor.connect().acknowledged == 1


def test_an_agent_whose_predecessor_fell_silent_is_accepted(database_url: str) -> None:
    with Server(database_url, heartbeat=0.2, silent_after=0.5) as server, Agent(server, instance="one") as first:
        first.connect()
        refused = set()

        def accepted() -> bool:
            with Agent(server, instance="two") as second:
                try:
                    second.connect()
                except grpc.RpcError as error:
                    refused.add(Failure(error).reason)
                    return False
                return True

        wait_for(accepted)
        assert refused == {"NODE_CONNECTED"}


def test_another_state_directory_while_the_agent_may_come_back(server: Server) -> None:
    """On the same machine, which has not rebooted: the runs of the first one may well be alive."""
    with Agent(server, boot="machine/spool-1") as agent:
        agent.connect()
        job = server.submit(devices=1)
        agent.orders()
        agent.started(1, job.id)
        assert agent.acknowledged() == 1
        agent.hang_up()
    with Agent(server, boot="machine/spool-2") as twin:
        why = failure(twin.connect)
        assert (why.code, why.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NODE_CONNECTED")
        assert "another state directory of the same machine" in why.text
        assert "once nothing was heard of it for 10 s" in why.text
    with Agent(server, boot="machine/spool-1", runs=[known(job.id, link_pb.RUN_PHASE_RUNNING)]) as back:
        assert back.connect().acknowledged == 1
        assert server.get(job.id).run == 1


def test_a_machine_that_rebooted_is_not_waited_for(server: Server) -> None:
    with Agent(server, boot="kernel/1/spool-1") as agent:
        agent.connect()
        agent.hang_up()
    with Agent(server, boot="kernel/2/spool-2") as rebooted:
        assert rebooted.connect().acknowledged == 0


def test_a_new_leader_waits_for_the_agents_of_the_last_one(database_url: str) -> None:
    with Server(database_url) as first, Agent(first, boot="machine/spool-1") as agent:
        agent.connect()
    with Server(database_url) as second:
        with Agent(second, boot="machine/spool-2") as twin:
            assert failure(twin.connect).reason == "NODE_CONNECTED"
        with Agent(second, boot="machine/spool-1") as agent:
            agent.connect()


def test_a_spool_that_was_lost_is_believed_once_the_node_was_not_heard_of(database_url: str) -> None:
    with Server(database_url, heartbeat=0.2, silent_after=0.6) as server:
        with Agent(server, boot="machine/spool-1") as agent:
            agent.connect()
            job = server.submit(devices=1)
            agent.orders()
            agent.started(1, job.id)
            assert agent.acknowledged() == 1
            agent.hang_up()
        refused = []
        while True:
            with Agent(server, boot="machine/spool-2") as successor:
                try:
                    successor.connect()
                except grpc.RpcError as error:
                    refused.append(Failure(error).reason)
                    continue
                assert [(order.job_id, order.run) for order in successor.orders()] == [(job.id, 2)]
                break
        assert set(refused) == {"NODE_CONNECTED"}


def test_one_that_begins_anew_as_the_database_has_forgotten_it_is_no_twin(server: Server) -> None:
    server.backend.leading.skipped_below = server.backend.leading.epoch + 1
    of_cluster = {"cluster_id": server.backend.leading.cluster_id}
    with Agent(server, boot="machine/spool-1", acknowledged=2, **of_cluster) as ahead:
        assert ahead.connect().acknowledged == 0
    wait_for(lambda: server.backend.leading.dispatch.connected_link("n1") is None)
    with Agent(server, boot="machine/spool-2", **of_cluster) as anew:
        anew.connect()


def test_a_run_that_the_agent_lost(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    agent.started(1, job.id)
    assert agent.acknowledged() == 1
    with Agent(server) as again:  # the same boot, and it does not know the run
        assert again.connect().acknowledged == 1
        assert [(order.job_id, order.run) for order in again.orders()] == [(job.id, 2)]


def test_the_fence_over_restarts(server: Server, database_url: str) -> None:
    with Agent(server) as agent:
        welcome = agent.connect()
    server.stop()
    with Server(database_url) as second:
        epoch = second.backend.leading.epoch
        assert epoch > welcome.epoch
        with Agent(second, cluster_id=welcome.cluster_id, epoch=welcome.epoch) as back:
            assert back.connect().epoch == epoch
        seal = second.backend.leading.seals.seal_of(epoch + 1)
        with Agent(second, cluster_id=welcome.cluster_id, epoch=epoch + 1, seal=seal) as ahead:
            assert failure(ahead.connect).reason == "OLD_EPOCH"


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_an_agent_that_has_reported_more_than_the_database_knows(
    server: Server, boot: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have met another boot of the node since. It is welcomed, and the numbers of jobs that may be lost are skipped."""
    with Agent(server) as agent:
        welcome = agent.connect()
        job = server.submit(devices=1)
        agent.orders()
        agent.started(1, job.id)
        assert agent.acknowledged() == 1
        agent.hang_up()
    leading, known = server.backend.leading, 1 if boot == "boot-1" else 0
    of_cluster = {"cluster_id": welcome.cluster_id, "epoch": welcome.epoch}
    with Agent(server, boot=boot, acknowledged=2, **of_cluster) as ahead:
        assert ahead.connect().acknowledged == known
    assert f"node n1 (as {USER}, from ipv4:127.0.0.1:" in caplog.text
    assert f"its reports up to 2 were acknowledged, and the database knows those up to {known}: " in caplog.text
    assert server.backend.leading is leading
    assert server.submit().id == job.id + 1 + SKIPPED


def test_nobody_ends_a_leadership_or_has_numbers_skipped_twice_by_claiming_acknowledged_reports(server: Server) -> None:
    leading, first = server.backend.leading, server.submit()
    hello: dict[str, Any] = {"cluster_id": leading.cluster_id, "acknowledged": 2**63 - 1}
    for name in ("n1", "n2", "n1"):
        with Agent(server, name, epoch=leading.epoch, **hello) as liar:
            assert liar.connect().acknowledged == 0
        wait_for(lambda: server.backend.leading.dispatch.connected_link(name) is None)  # noqa: B023
    with Agent(server, epoch=leading.epoch + 1, **hello) as liar:
        assert failure(liar.connect).reason == "EPOCH_UNKNOWN"
    assert server.backend.leading is leading
    assert server.submit().id == first.id + 1 + SKIPPED


def test_who_claims_a_higher_epoch_without_its_seal_is_named_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    leading = server.backend.leading
    for seal in (b"", leading.seals.seal_of(1), leading.seals.seal_of(50)):
        with Agent(server, cluster_id=leading.cluster_id, epoch=51, seal=seal) as liar:
            why = failure(liar.connect)
            assert (why.code, why.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "EPOCH_UNKNOWN")
            assert "run `ebb-scheduler restored`" in why.text
    (told,) = [record.getMessage() for record in caplog.records if "seal" in record.getMessage()]
    assert told.startswith(f"node n1 (as {USER}, from ipv4:127.0.0.1:")
    assert server.backend.leading is leading


def test_one_that_leads_above_what_was_lost_accepts_it(server: Server) -> None:
    server.backend.leading.skipped_below = server.backend.leading.epoch + 1
    with Agent(server, cluster_id=server.backend.leading.cluster_id, acknowledged=2) as ahead:
        assert ahead.connect().acknowledged == 0


def test_a_silent_node_and_its_return(database_url: str) -> None:
    with Server(database_url, heartbeat=0.1, silent_after=0.3) as server:
        with Agent(server) as agent:
            agent.connect()
            job = server.submit(devices=1)
            agent.orders()
            agent.started(1, job.id)
            assert agent.acknowledged() == 1
            server.until(job.id, "UNREACHABLE")
            (node,) = server.nodes()
            assert (node.state, node.free.devices) == (cluster_pb2.NODE_STATE_SILENT, 1)
            waiting = server.submit(devices=1)
            assert server.get(waiting.id).state == job_pb2.JOB_STATE_QUEUED, "nothing new is placed on it"
        with Agent(server, runs=[known(job.id, link_pb.RUN_PHASE_RUNNING)]) as back:
            assert back.connect().acknowledged == 1
            wait_for(lambda: server.get(waiting.id).run == 1)
            assert server.get(job.id).run == 1


def test_what_no_agent_was_told_of_begins_elsewhere_once_the_node_is_silent(database_url: str) -> None:
    with Server(database_url, heartbeat=0.5, silent_after=2) as server:
        with Agent(server) as agent:
            agent.connect()
            told = server.submit(devices=1)
            agent.orders()
            agent.hang_up()
            untold = server.submit(devices=1)
            assert server.get(untold.id).run == 1, "the node is not silent yet"
        assert server.until(untold.id, "QUEUED").reason == job_pb2.JOB_REASON_NODE_LOST
        assert server.get(told.id).state == job_pb2.JOB_STATE_UNREACHABLE
        with Agent(server, "n2") as other:
            other.connect()
            assert [(order.job_id, order.run) for order in other.orders()] == [(untold.id, 2)]
        with Agent(server, runs=[known(told.id, link_pb.RUN_PHASE_STARTING)]) as back:
            back.connect()
            server.until(told.id, "STARTING")
            assert server.get(untold.id).run == 2
