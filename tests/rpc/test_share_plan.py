"""The plan of a share group on the wire."""

from ebb.agent.v1 import agent_link_pb2 as pb

from scheduler_service.core.lifecycle.desired import desired_order
from scheduler_service.core.messages import Share
from scheduler_service.core.model.values import SECOND
from scheduler_service.rpc.convert.agents import orders_out
from tests.core.sharing_desk import HALF, Sharing, key, row, shared


def told(desk: Sharing, job: int) -> pb.DesiredRun:
    run = desk.run(job)
    order = desired_order(desk.job(job), run, desk.state.share_groups.rows.get(run.group))
    assert order is not None
    (message,) = orders_out([order], 1, desk.state.nodes.rows)
    (sent,) = message.desired_runs.runs
    return sent


def test_a_member_is_told_who_executes_when() -> None:
    desk = shared()
    desk.do(Share((row(1, weight=3), row(2)), ((key(2), 9000),), 30 * SECOND))
    sent = told(desk, 2)
    share = sent.running.share
    assert (share.group, share.generation) == (desk.group().id, desk.group().generation)
    assert [(one.weight, [(run.job_id, run.run, run.task) for run in one.runs]) for one in share.rows] == [
        (3, [(1, 1, 0)]),
        (1, [(2, 1, 0)]),
    ]
    assert (list(share.active), share.period.seconds) == ([1], 30)
    assert (share.device_memory_mib, share.parked_mib) == (9000, 9000)
    assert (list(sent.running.devices), sent.generation) == ([0], desk.run(2).generation)


def test_who_has_its_devices_alone_has_no_plan() -> None:
    desk = shared()
    desk.start(2)
    assert told(desk, 2).running.share.device_memory_mib == HALF
    desk.exit(2)
    sent = told(desk, 1)
    assert sent.HasField("running")
    assert not sent.running.HasField("share")
