"""What the agent does about orders, as a table."""

import pytest

from node_agent.jobs.model import Order, RunKey, RunPhase, RunRecord, StartOrder, StopOrder, StopReason
from node_agent.jobs.reconcile import Action, Launch, Refuse, Stop, reconcile

KEY = RunKey(7, 1)
NOW = 100.0
START = StartOrder(KEY, ("true",))
STARTING = RunRecord(KEY, RunPhase.STARTING, START)
RUNNING = RunRecord(KEY, RunPhase.RUNNING, pid=5)
STOPPING = RunRecord(KEY, RunPhase.STOPPING, pid=5, stop_received=90.0, stop_deadline=120.0)
ENDED = RunRecord(KEY, RunPhase.ENDED, pid=5)


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
        ([StopOrder(KEY, 30, StopReason.UNCLAIMED)], RUNNING, [Stop(KEY, NOW, 130.0)]),
    ],
)
def test_table(orders: list[Order], known: RunRecord | None, actions: list[Action]) -> None:
    assert reconcile(orders, {} if known is None else {KEY: known}, NOW) == actions


def test_another_run_of_the_same_job_is_another_run() -> None:
    second = StartOrder(RunKey(7, 2), ("true",))
    assert reconcile([second], {KEY: ENDED}, NOW) == [Launch(second)]
