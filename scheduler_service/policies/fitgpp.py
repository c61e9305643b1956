"""FitGpp: trials start now, at the cost of small best-effort runs with short grace periods (papers: section 3).

Trials have their own strict FIFO, which is served first. One that fits nowhere has runs preempted for it and waits for
them with an earmark; those behind it are then served in turn. Best-effort jobs follow by FIFO with what is left.
"""

from collections.abc import Generator

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.job import Job, JobClass, OperationPhase, Reason
from scheduler_service.core.messages import Place, Plan, Rng, Wait
from scheduler_service.core.state import State
from scheduler_service.policies.fifo import serve
from scheduler_service.policies.fitting import no_room, pick_devices, place, queued
from scheduler_service.policies.victims import FitGppSettings, fitgpp_victims


def fitgpp(settings: FitGppSettings) -> Policy:
    """The policy with these parameters."""

    def policy(state: State, rng: Rng) -> Proposals:
        yield from _start_on_earmarks(state)
        if (yield from _serve_trials(state, settings, rng)):
            yield from serve(state, (JobClass.BEST_EFFORT,))

    return policy


def _start_on_earmarks(state: State) -> Proposals:
    """Trials whose earmark is complete start on it. They take nothing from anybody, so those before them in the queue, who
    may be waiting for that very room, do not hold them up."""
    for operation_id in sorted(state.earmark_of.values()):
        earmark = state.operations.rows[operation_id]
        if earmark.phase is OperationPhase.READY:
            yield (Place(earmark.job_id, earmark.node, pick_devices(state, earmark.node, earmark.want.devices)),)


def _serve_trials(state: State, settings: FitGppSettings, rng: Rng) -> Generator[Plan, str | None, bool]:
    """Returns whether best-effort jobs may be served: not while a trial waits that nothing could be preempted for, since
    they would take what becomes free before it."""
    skip = 0
    while (trial := queued(state, JobClass.TRIAL, skip)) is not None:
        action, had_earmark = place(state, trial), trial.id in state.earmark_of
        if action is not None and (yield (action,)) is None:
            # What was kept for it elsewhere is free: those before it in the queue are asked again.
            skip = 0 if had_earmark else skip
            continue
        if trial.id not in state.earmark_of:
            wait = no_room(state, trial)
            if wait.reason is Reason.TOO_LARGE:
                yield (wait,)
            elif settings.trials_in_flight is not None and len(state.earmark_of) >= settings.trials_in_flight:
                yield (wait,)
                return True
            elif not (yield from _preempt_for(state, trial, settings, rng)):
                yield (
                    Wait(trial.id, Reason.NOTHING_TO_PREEMPT, "every run that may be preempted, together, would not make room"),
                )
                return False
        skip += 1
    return True


def _preempt_for(state: State, trial: Job, settings: FitGppSettings, rng: Rng) -> Generator[Plan, str | None, bool]:
    """Whether runs were told to leave for the trial."""
    plan = fitgpp_victims(state, trial, settings, rng)
    if plan is None:
        return False
    return (yield (*plan, Wait(trial.id, Reason.WAITING_FOR_VICTIMS))) is None
