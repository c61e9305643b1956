"""What to do about orders, decided from the orders and the spool alone. Pure: no clock, no process, no file.

Orders are level-triggered. They may be sent again at any time, and a run that they do not name goes on.

    order   run is              what is done
    start   unknown             Launch
    start   known, any phase    nothing: it was launched, or refused, before
    stop    unknown             Refuse: remember it as ended, so that its start, if it comes late, finds it so
    stop    starting, running   Stop, with a deadline counted from now
    stop    stopping            nothing, or Stop with an earlier deadline where the new grace period is shorter;
                                both are counted from the first receipt, so that a resend restarts no grace
    stop    ended               nothing
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from node_agent.jobs.model import Order, RunKey, RunPhase, RunRecord, StartOrder, StopOrder


@dataclass(frozen=True, slots=True)
class Launch:
    order: StartOrder

    @property
    def key(self) -> RunKey:
        return self.order.key


@dataclass(frozen=True, slots=True)
class Stop:
    key: RunKey
    received: float
    """When the run was first told to stop."""
    deadline: float


@dataclass(frozen=True, slots=True)
class Refuse:
    key: RunKey


Action = Launch | Stop | Refuse


def reconcile(orders: Iterable[Order], known: Mapping[RunKey, RunRecord], now: float) -> list[Action]:
    """The actions that bring about what `orders` say, in their order. Orders that hold already give none."""
    actions: list[Action] = []
    seen: dict[RunKey, RunRecord] = {}  # what the orders before this one in the same message have made of their runs
    for order in orders:
        record = seen.get(order.key) or known.get(order.key)
        action = _start(order, record) if isinstance(order, StartOrder) else _stop(order, record, now)
        if action is not None:
            actions.append(action)
            seen[order.key] = _after(action)
    return actions


def _start(order: StartOrder, record: RunRecord | None) -> Action | None:
    return Launch(order) if record is None else None


def _stop(order: StopOrder, record: RunRecord | None, now: float) -> Action | None:
    if record is None:
        return Refuse(order.key)
    if record.phase is RunPhase.ENDED:
        return None
    received = now if record.stop_received is None else record.stop_received
    deadline = received + order.grace
    if record.stop_deadline is not None and deadline >= record.stop_deadline:
        return None
    return Stop(order.key, received, deadline)


def _after(action: Action) -> RunRecord:
    if isinstance(action, Launch):
        return RunRecord(action.key, RunPhase.STARTING)
    if isinstance(action, Refuse):
        return RunRecord(action.key, RunPhase.ENDED)
    return RunRecord(action.key, RunPhase.STOPPING, stop_received=action.received, stop_deadline=action.deadline)
