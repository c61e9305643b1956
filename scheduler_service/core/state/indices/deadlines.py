"""The index of deadlines."""

from bisect import bisect_left, insort

from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_keys import Deadline
from scheduler_service.core.state.tables import Tables

_Due = tuple[tuple[Deadline, Micros | None], ...]


def set_deadlines(state: Tables, key: tuple[int, ...], old: _Due, new: _Due) -> None:
    for (kind, before), (_, after) in zip(old, new, strict=True):
        if before != after:
            set_deadline(state, kind, key, before, after)


def set_deadline(
    state: Tables, kind: Deadline, key: tuple[int | str, ...], before: Micros | None, after: Micros | None
) -> None:
    """Moves a deadline in the plain list of deadlines; all entries behind it are moved in one go."""
    if before is not None:
        del state.deadlines[bisect_left(state.deadlines, (before, kind, key))]
    if after is not None:
        insort(state.deadlines, (after, kind, key))
