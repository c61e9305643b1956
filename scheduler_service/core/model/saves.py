"""Whether the work of runs was saved when they ended."""

from enum import IntEnum
from typing import NamedTuple


class SaveOutcome(IntEnum):
    """The outcome of a save. Values as in ebb.v1.SaveOutcome, which says what each means."""

    UNKNOWN = 0
    SAVED = 1
    NOT_SAVED = 2


_WORST_LAST = (SaveOutcome.SAVED, SaveOutcome.UNKNOWN, SaveOutcome.NOT_SAVED)


class SaveResult(NamedTuple):
    """Whether one run saved its work."""

    outcome: SaveOutcome
    step: int = -1
    """Step of its last checkpoint, which holds all of its work if the outcome is SAVED; -1: unknown, or no checkpoint."""
    detail: str = ""
    """For people: why it did not save, why that cannot be known, or how its work was saved."""

    def __str__(self) -> str:
        why = f" ({self.detail})" if self.detail else ""
        if self.outcome is SaveOutcome.UNKNOWN:
            return f"whether it saved cannot be known{why}"
        if self.outcome is SaveOutcome.SAVED:
            return f"saved{'' if self.step < 0 else f' at step {self.step}'}{why}"
        return f"did not save{why}" + (f"; its last checkpoint is of step {self.step}" if self.step >= 0 else "")


UNKNOWN = SaveResult(SaveOutcome.UNKNOWN)


class LaunchSave(NamedTuple):
    """The worst result among the tasks of one launch that have ended."""

    run: int
    """The launch."""
    worst: SaveResult


def with_task(before: LaunchSave | None, run: int, save: SaveResult | None) -> LaunchSave | None:
    """Return the result of a launch after one more of its tasks has ended. `save` is the task's result; None: unknown."""
    if before is None or before.run != run:
        return None if save is None else LaunchSave(run, save)
    return LaunchSave(run, max(before.worst, save or UNKNOWN, key=lambda one: (_WORST_LAST.index(one.outcome), -one.step)))
