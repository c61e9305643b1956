"""How a job saves its checkpoint while it is parked, without its device."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from client_sdk.training import step_counter
from client_sdk.training._run.process_exit import OBEYED
from client_sdk.training._saving import Parts, Saving

if TYPE_CHECKING:
    from ebb_inject.ebb_hook.parking import Parking, Saver
    from ebb_inject.ebb_hook.tensor_offload import HostCopies


class WhileParked:
    """Tells the hook at which boundaries the state of the job is complete. Costs two assignments for each step.

    `step` and `parts` give what is saved, as for `Saving.at_boundary`. Ranks that write their own shards cannot save without
    their devices, because they do so together.
    """

    def __init__(self, saving: Saving, step: Callable[[], int], parts: Callable[[], Parts]) -> None:
        self._parking: Parking | None = step_counter.parking_of_process()
        self._saver: Saver | None = None
        if self._parking is not None and not saving.sharded:
            self._saver = _saver(saving, step, parts)

    def can_save(self, complete: bool) -> None:
        """Whether a program that is parked from here on can save."""
        if self._parking is not None:
            self._parking.saver = self._saver if complete else None


def _saver(saving: Saving, step: Callable[[], int], parts: Callable[[], Parts]) -> "Saver":
    from ebb_inject.ebb_hook.parking import Saver  # which outside of Ebb is not imported

    def save(host: "HostCopies") -> None:
        saving.save_parked(step(), lambda: _take_parts(host, parts))

    return Saver(save, lambda: _leave(saving))


def _take_parts(host: "HostCopies", parts: Callable[[], Parts]) -> Parts:
    with host.shown():
        taken = parts()
    found: Any = host.of(taken)
    return dict(found)


def _leave(saving: Saving) -> None:
    """Does not run what the program would do at its exit, since that may use tensors that have no contents."""
    saving.say_yielded()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(OBEYED)
