"""What the agent does about orders, as a table."""

import pytest

from node_agent.jobs.model import Gang, Order, RunKey, RunPhase, RunRecord, StartOrder, StopOrder, StopReason
from node_agent.jobs.reconcile import Action, Launch, Prepare, Refuse, Release, Stop, reconcile

KEY = RunKey(7, 1)
NOW = 100.0
START = StartOrder(KEY, ("true",))
STARTING = RunRecord(KEY, RunPhase.STARTING, START)
RUNNING = RunRecord(KEY, RunPhase.RUNNING, pid=5)
STOPPING = RunRecord(KEY, RunPhase.STOPPING, pid=5, stop_received=90.0, stop_deadline=120.0)
ENDED = RunRecord(KEY, RunPhase.ENDED, pid=5)
PREPARE = StartOrder(KEY, ("true",), gang=Gang(1, 3, 0, 2, 1, ("a", "b")))
GO = StartOrder(KEY, ("other",), gang=Gang(0, 0, 0, 0, 0, (), True, "a", 77))
TOGETHER = StartOrder(KEY, ("true",), gang=Gang(1, 3, 0, 2, 1, ("a", "b"), True, "a", 77))
PREPARING = RunRecord(KEY, RunPhase.STARTING, PREPARE)
READY = RunRecord(KEY, RunPhase.READY, PREPARE)
LAUNCHING = RunRecord(KEY, RunPhase.STARTING, TOGETHER)


def stop(grace: float) -> StopOrder:
    return StopOrder(KEY, grace)


@pytest.mark.parametrize(
    ("orders", "known", "actions"),
    [
        ([], None, []),
        ([], RUNNING, []),
        ([START], None, [Launch(START)]),
        ([START], STARTING, []),
        ([START], RUNNING, []),
        ([START], STOPPING, []),
        ([START], ENDED, []),
        ([START, START], None, [Launch(START)]),
        ([stop(30)], None, [Refuse(KEY)]),
        ([stop(30)], STARTING, [Stop(KEY, NOW, 130.0)]),
        ([stop(30)], RUNNING, [Stop(KEY, NOW, 130.0)]),
        ([stop(0)], RUNNING, [Stop(KEY, NOW, NOW)]),
        ([stop(30)], STOPPING, []),
        ([stop(60)], STOPPING, []),
        ([stop(20)], STOPPING, [Stop(KEY, 90.0, 110.0)]),
        ([stop(0)], STOPPING, [Stop(KEY, 90.0, 90.0)]),
        ([stop(30)], ENDED, []),
        ([stop(30), stop(30)], RUNNING, [Stop(KEY, NOW, 130.0)]),
        ([START, stop(30)], None, [Launch(START), Stop(KEY, NOW, 130.0)]),
        ([stop(30), START], None, [Refuse(KEY)]),
        ([StopOrder(KEY, 30, StopReason.UNCLAIMED)], RUNNING, [Stop(KEY, NOW, 130.0, StopReason.UNCLAIMED)]),
        ([StopOrder(KEY, 30, StopReason.PREEMPTED, 9)], RUNNING, [Stop(KEY, NOW, 130.0, StopReason.PREEMPTED, 9)]),
        ([PREPARE], None, [Prepare(PREPARE)]),
        ([PREPARE], PREPARING, []),
        ([PREPARE], READY, []),
        ([PREPARE], LAUNCHING, []),
        ([PREPARE], RUNNING, []),
        ([PREPARE], ENDED, []),
        ([GO], None, [Launch(GO)]),
        ([GO], READY, [Launch(TOGETHER)]),
        ([GO], PREPARING, [Launch(TOGETHER)]),
        ([GO], LAUNCHING, []),
        ([GO], RUNNING, []),
        ([GO], STOPPING, []),
        ([GO], ENDED, []),
        ([GO, GO], READY, [Launch(TOGETHER)]),
        ([PREPARE, GO], None, [Prepare(PREPARE), Launch(TOGETHER)]),
        ([stop(30)], PREPARING, [Release(KEY)]),
        ([stop(30)], READY, [Release(KEY)]),
        ([stop(30), GO], READY, [Release(KEY)]),
        ([stop(30)], LAUNCHING, [Stop(KEY, NOW, 130.0)]),
        ([GO, stop(30)], READY, [Launch(TOGETHER), Stop(KEY, NOW, 130.0)]),
        ([PREPARE, stop(30)], None, [Prepare(PREPARE), Release(KEY)]),
    ],
)
def test_table(orders: list[Order], known: RunRecord | None, actions: list[Action]) -> None:
    assert reconcile(orders, {} if known is None else {KEY: known}, NOW) == actions


@pytest.mark.parametrize("key", [RunKey(7, 2), RunKey(7, 1, 1)])
def test_another_run_or_task_of_the_same_job_is_another_run(key: RunKey) -> None:
    second = StartOrder(key, ("true",))
    assert reconcile([second], {KEY: ENDED}, NOW) == [Launch(second)]


def test_names() -> None:
    names = {RunKey(17, 1): ("17.1", "17.1"), RunKey(17, 1, 2): ("17.1/2", "17.1.2")}
    assert {key: (str(key), key.name) for key in names} == names
    assert [RunKey.named(key.name) for key in names] == list(names)
