"""Why a parked job does not resume."""

from scheduler_service.core.model import Job, OperationPhase, Reason
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.operations.moving_parked import may_move
from scheduler_service.core.operations.parking import BY_USER
from scheduler_service.core.operations.resuming import what_holds_up
from scheduler_service.core.state.state import State
from scheduler_service.policies.explain.explanation import Blocker, Explanation


def explain_parked(state: State, job: Job, operation: Operation) -> Explanation:
    """Explain what a parked job waits for: its user, or the jobs that have its devices. While it is being parked, resumed or
    moved, nothing keeps it."""
    match operation.phase:
        case OperationPhase.PARKED if not operation.noted(BY_USER):
            where = "its devices, or others," if may_move(state, operation) else "its devices"
            why = f"another job has its place; it goes on when {where} are idle and nobody who outranks it waits"
            holder = next((one.job_id for one in what_holds_up(state, state.runs_of(job.id))), 0)
            return Explanation((Blocker(Reason.PARKED, why, holder),))
        case OperationPhase.PARKED:
            return Explanation((Blocker(Reason.PARKED, "it is parked and does not go on by itself: resume it"),))
        case OperationPhase.WAITING:
            held = what_holds_up(state, state.runs_of(job.id))
            how = "there is no room elsewhere" if may_move(state, operation) else "it resumes on its own devices"
            blockers = (Blocker(Reason.PARKED, f"{how}: {one.why}", one.job_id) for one in held)
            return Explanation(tuple(blockers))
        case _:
            return Explanation()
