"""Plans that were made outside of a step."""

from scheduler_service.core.messages import PlanReady
from scheduler_service.core.model.memo import ASKED, PLANNED
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State


def plan_ready(state: State, event: PlanReady, _now: Micros) -> None:
    """Gives the policy the plan that it waits for. A plan that is not waited for any more, as after a restart, is ignored."""
    at = event.policy, event.subject
    memo = state.memos.rows.get(at)
    if memo is not None and memo.value == (ASKED,):
        state.put(state.memos, at, with_changes(memo, value=(PLANNED, *event.plan), due_us=None, due=True))
