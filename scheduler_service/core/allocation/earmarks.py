"""Earmarks: what victims leave goes to one first, its deadline runs once everything is kept, and it is dropped in the end.

`enact` makes an earmark for an action of a plan. What it keeps goes to its job when the job is placed.
"""

from collections.abc import Iterable

from scheduler_service.core.allocation.bindings import give_back
from scheduler_service.core.model import EarmarkPhase, EventKind, Reason, Run
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.values import Micros, Vector, add, least, sub
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_NONE = Reason.NONE


def fill_earmark(state: State, now: Micros, earmark_id: int, victim: Run, released: Vector) -> Vector:
    """Moves what the earmark still misses from what was released; returns what it took. Of devices that it names it takes
    those, and no others."""
    earmark = state.earmarks.rows[earmark_id]
    if earmark.devices:
        mask = earmark.mask
        kept = with_share(earmark.want, (mask & ~state.held_devices.get(earmark.node, 0)).bit_count(), mask.bit_count())
    else:
        kept = add(earmark.kept, least(released, sub(earmark.want, earmark.kept)))
    victims = tuple(key for key in earmark.victims if key != victim.key)
    phase = earmark.phase if victims else EarmarkPhase.READY
    state.put(state.earmarks, earmark_id, changed(earmark, kept=kept, victims=victims, phase=phase))
    if not victims:
        start_earmark_clock(state, now, earmark.job_id)
    return least(released, sub(kept, earmark.kept))


def with_share(want: Vector, count: int, of: int) -> Vector:
    """So many `of` the devices that are wanted, each with its share of the rest, which is there as soon as the device is. One
    that kept more would keep what others' devices carry."""
    return Vector(*(amount * count // of for amount in want))


def start_earmark_clock(state: State, now: Micros, job_id: int) -> None:
    """Once everything is kept that the job waits for, on all of its nodes, it has some time to start there; not before."""
    earmarks = [state.earmarks.rows[i] for i in sorted(state.earmarks_of[job_id])]
    complete = all(earmark.phase is EarmarkPhase.READY for earmark in earmarks)
    deadline = now + state.settings.earmark_ttl_us if complete else None
    for earmark in earmarks:
        if earmark.deadline_us != deadline:
            state.put(state.earmarks, earmark.id, changed(earmark, deadline_us=deadline))


def drop_earmarks(state: State, now: Micros, job_id: int, why: str, starts_on: Iterable[int] = ()) -> None:
    """Frees what is kept for the job, if anything is. Victims that were told to leave go on leaving.

    Where the job starts on the very nodes (`starts_on`) the earmarks have done their work, which is no news for the story.
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
    if job.reason is Reason.WAITING_FOR_VICTIMS and not starts_on:  # the policy may not come to look at it again in this step
        state.put(state.jobs, job_id, changed(job, reason=_NONE, detail="", cause_job=0))
