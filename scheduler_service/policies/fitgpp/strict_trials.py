"""Trials in the papers' strict order: the first one that waits holds up every trial behind it, also those that would fit.

This is how the FitGpp paper's figures come about (docs/reproduction.md). A service does better with `queueing.trials_first`,
where a trial that waits for its victims is passed by.
"""

from collections.abc import Generator

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Plan, Rng, Wait
from scheduler_service.core.model import Reason
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.placing.first_fit import (
    leaves_queue,
    no_room,
    place_on_earmarks,
    place_on_first_node,
    queued_job,
    start_on_earmarks,
)
from scheduler_service.policies.queueing.in_order import not_looked_at
from scheduler_service.policies.queueing.trials_first import Serve, in_vain, trials_first
from scheduler_service.policies.stages import Choose


def serve_trials(victims: Choose, serve: Serve, settings: PreemptionSettings) -> Policy:
    """Trials are served first, in the order that the settings name; best-effort jobs follow."""
    if settings.in_order:
        return trials_in_order(victims, serve, settings.cap)
    return trials_first(victims, serve, settings.trials_in_flight, settings.cap)


def passed_by(state: State, settings: PreemptionSettings) -> bool:
    """Whether best-effort jobs are served while trials without an earmark wait until the victims of other trials have left."""
    if settings.in_order:
        first = state.site_queues[Lane.TRIAL].first
        return first is not None and first[-1] in state.earmarks_of
    return settings.trials_in_flight is not None and len(state.earmarks_of) >= settings.trials_in_flight


def trials_in_order(victims: Choose, serve: Serve, cap: int | None = None) -> Policy:
    """One trial at most waits for victims, with an earmark, and starts wherever it fits first. Others have earmarks that were
    given by the policy that was there before."""

    def policy(state: State, rng: Rng) -> Proposals:
        waits_in_vain = yield from _serve_first(state, victims, cap, rng)
        yield from start_on_earmarks(state, place_on_earmarks)
        if waits_in_vain:  # best-effort jobs would take what becomes free before it does
            yield from not_looked_at(state, (Lane.BEST_EFFORT,))
        else:
            yield from serve(state, (Lane.BEST_EFFORT,))

    return policy


def _serve_first(state: State, victims: Choose, cap: int | None, rng: Rng) -> Generator[Plan, str | None, bool]:
    """Trials in order, until one does not fit; whether nothing could be preempted for that one."""
    skip = 0
    while (trial := queued_job(state, Lane.TRIAL, skip)) is not None:
        action = place_on_first_node(state, trial)
        if action is not None:
            skip += (yield (action,)) is not None  # refused: it stays where it is
            continue
        wait = no_room(state, trial)
        if leaves_queue(wait):
            skip += (yield (wait,)) is not None  # it leaves the queue
            continue
        if trial.id not in state.earmarks_of:
            plan = victims(state, trial, rng)
            if plan is None or (yield (*plan, Wait(trial.id, Reason.WAITING_FOR_VICTIMS))) is not None:
                yield (in_vain(state, trial, cap),)
                return True
        return False
    return False
