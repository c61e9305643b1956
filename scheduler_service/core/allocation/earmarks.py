"""Earmarks keep what victims release for one job, which has a limited time to start once everything is kept.

`enact` makes an earmark for an action of a plan. What it keeps goes to its job when the job is placed.
"""

from collections.abc import Iterable

from scheduler_service.core.allocation.bindings import give_back
from scheduler_service.core.model import EarmarkPhase, EventKind, Reason, Run
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros, Vector, add, minimum, sub
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_NONE = Reason.NONE


def fill_earmark(state: State, now: Micros, earmark_id: int, victim: Run, released: Vector) -> Vector:
    """Moves what the earmark still lacks from what was released; returns what it took. If it names devices, it takes only
    those."""
    earmark = state.earmarks.rows[earmark_id]
    if earmark.devices:
        mask = earmark.mask
        kept = with_share(earmark.want, (mask & ~state.held_devices.get(earmark.node, 0)).bit_count(), mask.bit_count())
    else:
        kept = add(earmark.kept, minimum(released, sub(earmark.want, earmark.kept)))
    victims = tuple(key for key in earmark.victims if key != victim.key)
    phase = earmark.phase if victims else EarmarkPhase.READY
    state.put(state.earmarks, earmark_id, with_changes(earmark, kept=kept, victims=victims, phase=phase))
    if not victims:
        start_earmark_clock(state, now, earmark.job_id)
    return minimum(released, sub(kept, earmark.kept))


def with_share(want: Vector, count: int, of: int) -> Vector:
    """The part of `want` that goes with `count` of its `of` devices: each brings its share of the rest, which is available as
    soon as the device is. An earmark that kept more would keep what goes with devices of others."""
    return Vector(*(amount * count // of for amount in want))


def start_earmark_clock(state: State, now: Micros, job_id: int) -> None:
    """Sets the deadline by which the job must start, but only once everything that it waits for is kept on all of its nodes."""
    earmarks = [state.earmarks.rows[i] for i in sorted(state.earmarks_of[job_id])]
    complete = all(earmark.phase is EarmarkPhase.READY for earmark in earmarks)
    deadline = now + state.settings.earmark_ttl_us if complete else None
    for earmark in earmarks:
        if earmark.deadline_us != deadline:
            state.put(state.earmarks, earmark.id, with_changes(earmark, deadline_us=deadline))


def drop_earmarks(state: State, now: Micros, job_id: int, why: str, starts_on: Iterable[int] = ()) -> None:
    """Frees what is kept for the job, if anything is. Victims that were told to stop still stop.

    Earmarks on nodes where the job starts (`starts_on`) have done their work, which needs no line in the story.
    """
    if job_id not in state.earmarks_of:
        return
    for earmark_id in sorted(state.earmarks_of[job_id]):
        earmark = state.earmarks.rows[earmark_id]
        state.put(state.earmarks, earmark_id, None)
        if earmark.devices and not starts_on:
            give_back(state, earmark.node, earmark.mask)
        if earmark.node not in starts_on:
            log_event(state, now, job_id, EventKind.EARMARK_DROPPED, node=earmark.node, text=why)
    job = state.jobs.rows[job_id]
    if job.reason is Reason.WAITING_FOR_VICTIMS and not starts_on:  # the policy may not look at the job again in this step
        state.put(state.jobs, job_id, with_changes(job, reason=_NONE, detail="", cause_job=0))
