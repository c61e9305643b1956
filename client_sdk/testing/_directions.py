"""The wishes of the test: a policy that carries them out, in front of the policy of the cluster.

A wish reaches the engine as a plan that was made outside a step (PlanReady), for which a memo waits.
"""

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Plan, PlanReady, Preempt, Remember, Rng
from scheduler_service.core.model import Decision, Job, JobClass, JobState
from scheduler_service.core.model.memo import ASKED, PLANNED, shared_subject
from scheduler_service.core.state.queue_keys import is_in_queue
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import place

_NAME, _SUBJECT = "testing", shared_subject("", "wish")
_START, _PREEMPT = "start", "preempt"
_NO_CAP = 1 << 30


def start(job_id: int) -> PlanReady:
    """Ask to start a queued job, or the next element of an array."""
    return PlanReady(_NAME, _SUBJECT, (_START, job_id))


def preempt(job_id: int, for_job: int) -> PlanReady:
    """Ask to preempt a running job for a waiting trial."""
    return PlanReady(_NAME, _SUBJECT, (_PREEMPT, job_id, for_job))


class Directions:
    """The policy, and the result of the last wish."""

    def __init__(self, policy: Policy | None) -> None:
        """`policy`: of the cluster; None: nothing starts unless the test wants it."""
        self._policy = policy
        self.refusal = ""
        """Why the last wish was not carried out; empty if it was."""
        self.started = 0
        """The job that the last wish started."""

    def serve(self, state: State, rng: Rng) -> Proposals:
        """Carry out the wish, if there is one, and let the policy of the cluster act."""
        memo = state.memos.rows.get((_NAME, _SUBJECT))
        if memo is None or memo.due:
            if memo is not None and memo.value[0] == PLANNED:
                yield from self._carry_out(state, *memo.value[1:])
            yield (Remember(_NAME, _SUBJECT, (ASKED,)),)
        if self._policy is not None:
            yield from self._policy(state, rng)

    def _carry_out(self, state: State, what: int | str, job_id: int | str, for_job: int | str = 0) -> Proposals:
        job = state.jobs.rows[int(job_id)]
        if what == _PREEMPT:
            plan, self.refusal = _preempting(state, job, state.jobs.rows.get(int(for_job)))
        else:
            plan, self.refusal = _starting(state, job)
        if plan is not None:
            self.refusal = (yield plan) or ""
            self.started = job.id if job.elements is None else state.cluster.next_job - 1


def _starting(state: State, job: Job) -> tuple[Plan | None, str]:
    """Return the plan, or why it is not possible."""
    if why := _why_not_queued(job):
        return None, why
    placed = place(state, job)
    return (None, f"job {job.id} fits on no node now: finish another first") if placed is None else ((placed,), "")


def _preempting(state: State, job: Job, trial: Job | None) -> tuple[Plan | None, str]:
    """Return the plan, or why it is not possible."""
    if trial is None or job.spec.job_class is not JobClass.BEST_EFFORT or trial.spec.job_class is not JobClass.TRIAL:
        return None, "only best-effort jobs are preempted, and only for trials"
    runs = state.runs_of(job.id)
    node = runs[0].node if runs else 0
    decision = Decision(trial.id, node, trial.spec.demand, "test", 0.0, _NO_CAP, 0.0, 0, 1, ())
    return (Preempt(job.id, trial.id, _NO_CAP, decision),), ""


def _why_not_queued(job: Job) -> str:
    if job.state is not JobState.QUEUED:
        return f"job {job.id} is {job.state.name}; for this it must be QUEUED"
    array, elements = job.spec.array, job.elements
    if array is not None and elements is not None and array.at_once and elements.live >= array.at_once:
        return f"array {job.id} has as many elements under way as it may: finish one first"
    return "" if is_in_queue(job) else f"job {job.id} waits for something else than room: {job.reason.name}"
