"""Trials start now, at the cost of best-effort runs: the order in which they are served (FitGpp, section 3).

Trials have their own strict queue, which is served first. One that fits nowhere has runs preempted for it, as
`stages.Victims` says, and waits for them with an earmark; those behind it are then served in turn. If nothing could be
preempted for a trial, it has precedence on the nodes that it could use, before other trials and before best-effort jobs, since
they would take what becomes free before it. Best-effort jobs follow with what is left.
"""

from collections.abc import Callable, Generator

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Plan, Rng, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import (
    leaves_queue,
    no_room,
    place,
    place_on_earmarks,
    queued_job,
    start_on_earmarks,
)
from scheduler_service.policies.queueing.in_order import not_looked_at
from scheduler_service.policies.queueing.jobs_behind import MakeRoom, serve_behind
from scheduler_service.policies.queueing.nothing_to_preempt import NOT_ENOUGH, SHOWN, nothing_to_preempt, why_spared
from scheduler_service.policies.queueing.precedence import Precedence
from scheduler_service.policies.stages import Choose

NONE_OPEN = "no node is up and open"
Serve = Callable[[State, tuple[Lane, ...]], Proposals]
"""How a queue is served that preempts no job: `in_order.serve`, or `backfill.serve`."""


def trials_first(victims: Choose, serve: Serve, trials_in_flight: int | None = None, cap: int | None = None) -> Policy:
    """`trials_in_flight` bounds how many trials may wait for victims at once; None is no bound, 1 is the papers' setting.
    `cap`: how often a job may be preempted for trials."""

    def policy(state: State, rng: Rng) -> Proposals:
        if state.earmarks_of:
            yield from start_on_earmarks(state, place_on_earmarks)
        before = yield from _serve_trials(state, victims, trials_in_flight, cap, rng)
        if before is None:
            yield from serve(state, (Lane.BEST_EFFORT,))
        else:
            yield from not_looked_at(state, (Lane.BEST_EFFORT,))
            yield from serve_behind(state, (Lane.BEST_EFFORT,), before)

    return policy


def _serve_trials(
    state: State, victims: Choose, most: int | None, cap: int | None, rng: Rng
) -> Generator[Plan, str | None, Precedence | None]:
    """Returns what is to be left for trials that nothing could be preempted for; None: there are none such."""
    skip = 0
    while (trial := queued_job(state, Lane.TRIAL, skip)) is not None:
        action, had_earmark = place(state, trial), trial.id in state.earmarks_of
        if action is not None and (yield (action,)) is None:
            # What was kept for it elsewhere is free: those before it in the queue are asked again.
            skip = 0 if had_earmark else skip
            continue
        if trial.id not in state.earmarks_of:
            wait, before = no_room(state, trial), Precedence()
            if leaves_queue(wait):
                skip += (yield (wait,)) is not None
                continue
            elif not _may_preempt(state, most):
                yield (wait,)
                before.add(state, trial)
                yield from serve_behind(state, (Lane.TRIAL,), before)
                return None
            elif not (yield from _preempt_for(state, trial, victims, rng)):
                yield (in_vain(state, trial, cap),)
                before.add(state, trial)
                yield from serve_behind(state, (Lane.TRIAL,), before, _preempting_elsewhere(victims, most, cap, rng))
                return before
        skip += 1
    return None


def _may_preempt(state: State, most: int | None) -> bool:
    """Whether one more trial may wait for victims."""
    return most is None or len(state.earmarks_of) < most


def _preempting_elsewhere(victims: Choose, most: int | None, cap: int | None, rng: Rng) -> MakeRoom:
    """Trials behind one that waits have runs preempted on nodes that it could not use."""

    def make_room(state: State, trial: Job, before: Precedence) -> Generator[Plan, str | None, Wait | None]:
        if not before.reaches_beyond(state, trial):
            return no_room(state, trial)
        if not _may_preempt(state, most):
            return no_room(state, trial)
        with state.free_resources.keeping(before.kept_elsewhere()):
            plan = victims(state, trial, rng)
        if plan is not None and (yield _with_wait(trial, plan)) is None:
            return None
        return no_room(state, trial) if before.covers(state, trial) else in_vain(state, trial, cap)

    return make_room


def in_vain(state: State, trial: Job, cap: int | None) -> Wait:
    """Why no run is preempted for it, as it is when it begins to wait; an explanation says how it is later. If no node is open,
    whatever is preempted makes no room."""
    if not state.free_resources.any_open():
        return Wait(trial.id, Reason.NO_ROOM, NONE_OPEN)

    def why_in_vain() -> str:
        return ": ".join(filter(None, (NOT_ENOUGH, why_spared(state, trial, cap, SHOWN))))

    return nothing_to_preempt(Wait(trial.id, Reason.NO_ROOM), trial, why_in_vain)


def _preempt_for(state: State, trial: Job, victims: Choose, rng: Rng) -> Generator[Plan, str | None, bool]:
    """Preempt runs for the trial. Returns whether any were."""
    plan = victims(state, trial, rng)
    return plan is not None and (yield _with_wait(trial, plan)) is None


def _with_wait(trial: Job, plan: Plan) -> Plan:
    return (*plan, Wait(trial.id, Reason.WAITING_FOR_VICTIMS))
