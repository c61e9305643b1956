"""Trials start now, at the cost of best-effort runs: the order in which they are served (FitGpp, section 3).

Trials have their own strict queue, which is served first. One that fits nowhere has runs preempted for it, as
`stages.Victims` says, and waits for them with an earmark; those behind it are then served in turn. Best-effort jobs follow with
what is left.
"""

from collections.abc import Callable, Generator

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Plan, Rng, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.state.queue_keys import Lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.order.fifo import not_looked_at
from scheduler_service.policies.placing.first_fit import no_room, place, place_on_earmarks, queued, start_on_earmarks
from scheduler_service.policies.stages import Choose

NOT_ENOUGH = "every run that may be preempted, together, would not make room"
"""What goes with NOTHING_TO_PREEMPT."""
NONE_OPEN = "no node is up and open"
Serve = Callable[[State, tuple[Lane, ...]], Proposals]
"""How a queue is served that preempts nobody: `fifo.serve`, or `backfill.serve`."""


def trials_first(victims: Choose, serve: Serve, trials_in_flight: int | None = None) -> Policy:
    """`trials_in_flight` bounds how many trials may wait for victims at once; None is no bound, 1 is the papers' setting."""

    def policy(state: State, rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_earmarks)
        if (yield from _serve_trials(state, victims, trials_in_flight, rng)):
            yield from serve(state, (Lane.BEST_EFFORT,))
        else:
            yield from not_looked_at(state, (Lane.BEST_EFFORT,))

    return policy


def _serve_trials(state: State, victims: Choose, trials_in_flight: int | None, rng: Rng) -> Generator[Plan, str | None, bool]:
    """Returns whether best-effort jobs may be served: not while a trial waits that nothing could be preempted for, since
    they would take what becomes free before it."""
    skip = 0
    while (trial := queued(state, Lane.TRIAL, skip)) is not None:
        action, had_earmark = place(state, trial), trial.id in state.earmarks_of
        if action is not None and (yield (action,)) is None:
            # What was kept for it elsewhere is free: those before it in the queue are asked again.
            skip = 0 if had_earmark else skip
            continue
        if trial.id not in state.earmarks_of:
            wait = no_room(state, trial)
            if wait.reason is Reason.TOO_LARGE:
                skip += (yield (wait,)) is not None  # it leaves the queue
                continue
            elif trials_in_flight is not None and len(state.earmarks_of) >= trials_in_flight:
                yield (wait,)
                return True
            elif not (yield from _preempt_for(state, trial, victims, rng)):
                yield (in_vain(state, trial),)
                return False
        skip += 1
    return True


def in_vain(state: State, trial: Job) -> Wait:
    """Why nobody leaves for it. Where no node is open, whoever would leave could not make room anywhere."""
    if state.free_resources.any_open():
        return Wait(trial.id, Reason.NOTHING_TO_PREEMPT, NOT_ENOUGH)
    return Wait(trial.id, Reason.NO_ROOM, NONE_OPEN)


def _preempt_for(state: State, trial: Job, victims: Choose, rng: Rng) -> Generator[Plan, str | None, bool]:
    """Whether runs were told to leave for the trial."""
    plan = victims(state, trial, rng)
    if plan is None:
        return False
    return (yield (*plan, Wait(trial.id, Reason.WAITING_FOR_VICTIMS))) is None
