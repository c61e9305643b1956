"""What to do about orders, decided from the orders and the spool alone. Pure: no clock, no process, no file.

Orders are level-triggered. They may be sent again at any time, and a run that they do not name goes on.

    order   run is              what is done
    start   unknown             Launch; a task of a gang that waits for the others: Prepare
    start   ready               Launch where it says go, as the task that was prepared; else nothing
    start   known, other phase  nothing: it was launched, or refused, before
    stop    unknown             Refuse: remember it as ended, so that its start, if it comes late, finds it so
    stop    waits for its gang  Release: there is no process, so it is over at once
    stop    starting, running   Stop, with a deadline counted from now
    stop    stopping            nothing, or Stop with an earlier deadline where the new grace period is shorter;
                                both are counted from the first receipt, so that a resend restarts no grace
    stop    ended               nothing
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from node_agent.jobs.model import Order, RunKey, RunPhase, RunRecord, StartOrder, StopOrder, StopReason


@dataclass(frozen=True, slots=True)
class Launch:
    order: StartOrder

    @property
    def key(self) -> RunKey:
        return self.order.key


@dataclass(frozen=True, slots=True)
class Prepare:
    order: StartOrder

    @property
    def key(self) -> RunKey:
        return self.order.key


@dataclass(frozen=True, slots=True)
class Release:
    key: RunKey


@dataclass(frozen=True, slots=True)
class Stop:
    key: RunKey
    received: float
    """When the run was first told to stop."""
    deadline: float
    reason: StopReason = StopReason.UNSPECIFIED
    cause_job: int = 0


@dataclass(frozen=True, slots=True)
class Refuse:
    key: RunKey


Action = Launch | Prepare | Release | Stop | Refuse


def reconcile(orders: Iterable[Order], known: Mapping[RunKey, RunRecord], now: float) -> list[Action]:
    """The actions that bring about what `orders` say, in their order. Orders that hold already give none."""
    actions: list[Action] = []
    decided: dict[RunKey, Action] = {}  # by the orders before this one in the same message
    for order in orders:
        before = decided.get(order.key)
        record = known.get(order.key) if before is None else _after(before)
        match order:
            case StartOrder():
                action = _start(order, record)
            case StopOrder():
                action = _stop(order, record, now)
            case _:
                assert_never(order)
        if action is not None:
            actions.append(action)
            decided[order.key] = action
    return actions


def _start(order: StartOrder, record: RunRecord | None) -> Action | None:
    if record is None:
        return Prepare(order) if order.waits else Launch(order)
    if order.gang is None or not order.gang.go or not waits(record):
        return None
    prepared = record.order
    assert prepared is not None
    assert prepared.gang is not None
    gang = replace(prepared.gang, go=True, master_address=order.gang.master_address, master_port=order.gang.master_port)
    return Launch(replace(prepared, gang=gang))


def waits(record: RunRecord) -> bool:
    """A task that has no process yet, since its gang has not been told to go."""
    return record.phase in (RunPhase.READY, RunPhase.STARTING) and record.order is not None and record.order.waits


def _stop(order: StopOrder, record: RunRecord | None, now: float) -> Action | None:
    if record is None:
        return Refuse(order.key)
    if record.phase is RunPhase.ENDED:
        return None
    if waits(record):
        return Release(order.key)
    received = now if record.stop_received is None else record.stop_received
    deadline = received + order.grace
    if record.stop_deadline is not None and deadline >= record.stop_deadline:
        return None
    return Stop(order.key, received, deadline, order.reason, order.cause_job)


def _after(action: Action) -> RunRecord:
    match action:
        case Launch() | Prepare():
            return RunRecord(action.key, RunPhase.STARTING, action.order)
        case Refuse() | Release():
            return RunRecord(action.key, RunPhase.ENDED)
        case Stop():
            return RunRecord(action.key, RunPhase.STOPPING, stop_received=action.received, stop_deadline=action.deadline)
        case _:
            assert_never(action)
