"""Parks this process between two steps when the agent requests it: moves its device memory to host memory, and waits.

The callers of `Parking` compare one word of the control file at each boundary between steps, and call `at_boundary` if the
agent has requested something. A parked process sleeps until the next request, and the agent may stop it by SIGSTOP meanwhile.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from contextlib import nullcontext, suppress
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from . import gang_park_store as ranks
from .control import (
    LEAVE,
    PARK,
    PARK_TOGETHER,
    PARKED,
    PREPARE,
    PREPARED,
    REFUSED,
    RESUME,
    RUNNING,
    SAVE,
    SAVED,
    Control,
    Refused,
    Request,
)
from .gang_park_agreement import Together
from .signals import put_back, put_off
from .steps import Steps, claiming
from .tensor_offload import HostCopies, Moved, Mover

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_DEVICES = "EBB_PARK_DEVICES"
_WAIT = 1.0
"""Seconds after which a parked process looks for a request that did not wake it."""
_log = logging.getLogger("ebb_hook")


class Saver(NamedTuple):
    """How a program saves its checkpoint while parked."""

    save: Callable[[HostCopies], None]
    """Saves the state at this boundary, with host copies instead of tensors. It may be called again."""
    leave: Callable[[], None]
    """Reports that the work is saved, and ends the process immediately: other code of the program needs its tensors."""


class Parking:
    """The parking of this process. A forked child has none until it reaches a boundary itself."""

    def __init__(self, folder: str) -> None:
        """Create the control file in this folder. Raises OSError."""
        self._folder = folder
        self._mover: Mover | None = None
        self._step = 0
        self._control = Control(folder)
        self.word = self._control.word
        """Its element differs from `seen` when a request has arrived."""
        self.seen = 0
        self._together: Together | None = None
        if "," in os.environ.get("EBB_NODES", ""):  # a task of a gang on several nodes
            self._together = Together(self._control, os.environ.get("EBB_TASK") == "0")
        self.saver: Saver | None = None
        """Set by the program for a boundary at which its state is complete."""
        self._saved = False

    def is_due(self, counter: Steps) -> tuple[int, int] | None:
        """Return the command and the step (`at_step`) of a request that concerns the completed step, if any. The hook may be of
        another version than this copy, which the SDK has brought: older ones only say whether there is one.

        A rank of a gang on several nodes waits here until it knows after which step all of them park. Raises nothing of its
        own; handlers of signals that arrive meanwhile may."""
        noted: list[int] = []
        request = due = None
        try:
            request = self._request()
            if request is not None and self._must_obey(request, counter, counter.step, noted):
                due = request.command, request.at_step
        except Exception as error:
            self._handle_error(error, request)
        _raise(noted)
        return due

    def at_boundary(self, counter: Steps | None, step: int | None = None) -> None:
        """Do what the agent requests, if anything. While the process is parked, this call does not return.

        `counter` counts the steps of this process. `step` is the completed step, by default the counter's.
        Raises nothing of its own: a request that cannot be carried out is answered, and the program continues. Signals
        that arrive while the process is parked are handled at the end, and their handlers may raise.
        """
        noted: list[int] = []
        request = None
        try:
            if (request := self._request()) is None or request.number == self.seen:
                return
            step = (counter.step if counter is not None else 0) if step is None else step
            if self._must_obey(request, counter, step, noted):
                self._step = step
                paused: AbstractContextManager[None] = nullcontext() if counter is None else counter.paused()
                with paused:
                    self._obey(request, noted)
        except Exception as error:
            self._handle_error(error, request)
        finally:
            _raise(noted)

    def _request(self) -> Request | None:
        """Return the last request; None while one is being written: the earlier one is then no longer current."""
        request = self._control.request()
        if request is None and self._together is not None:
            self._together.note_passed_boundary()
        return request

    def _handle_error(self, error: Exception, request: Request | None) -> None:
        """`request`: the one that failed, and is not tried again; None: it could not even be read."""
        _log.warning("the process cannot park: %s: %s. The training goes on", type(error).__name__, error)
        self.seen = self.word[0] if request is None else request.number
        if self._together is not None:
            self._together.note_passed_boundary("the hook has failed")

    def _must_obey(self, request: Request, counter: Steps | None, step: int, noted: list[int]) -> bool:
        """Whether the process should obey a request now, after this step. Signals that arrive meanwhile are noted."""
        if request.command == PARK:
            return step >= request.at_step
        if request.command != PARK_TOGETHER:
            return True
        if self._together is None:
            return True  # and refuse
        paused: AbstractContextManager[None] = nullcontext() if counter is None else counter.paused()
        self._step = step
        try:
            self._ready(request)
            theirs = put_off(noted)
            try:
                with paused:
                    return self._together.parks_after(request, counter, step)
            finally:
                put_back(theirs)
        except Refused as why:
            self._refuse(request, str(why))
            return False

    def _obey(self, request: Request, noted: list[int]) -> None:
        """Carry out a request of a running process. Signals that arrive meanwhile are noted."""
        if request.command == RESUME:
            if self._together is not None:
                self._together.note_other_request()
            self._answer(request, RUNNING)
            return
        try:
            mover = self._ready(request)
            if request.command == PREPARE:
                self._answer(request, PREPARED, bytes=mover.prepare(request.most_bytes), pinned=mover.arena.pinned)
                return
            theirs = put_off(noted)
            try:
                self._park(request, mover)
            finally:
                put_back(theirs)
        except Refused as why:
            self._refuse(request, str(why))
        except Exception as error:
            self._refuse(request, f"{type(error).__name__}: {error}")
        else:
            if request.command == PARK_TOGETHER and self._together is not None:
                self._together.note_resume(request.at_step)

    def _park(self, request: Request, mover: Mover) -> None:
        """Park, and return when the process should continue. Raises Refused if it does not park, with nothing left moved."""
        moved = mover.move_out(request.most_bytes)
        if request.command == PARK_TOGETHER and self._together is not None:
            try:
                self._together.may_stop(request.at_step)
            except Exception as why:
                try:
                    mover.move_back(moved)
                except Exception as error:  # it cannot continue without its memory, so it is parked alone
                    _log.warning("the process stays parked, though other ranks do not park (%s): %s", why, error)
                else:
                    raise
        self._sleep(request, mover, moved)

    def _refuse(self, request: Request, reason: str) -> None:
        if request.command == PARK_TOGETHER and self._together is not None:
            self._together.note_refusal(request.at_step, reason)
        self._answer(request, REFUSED, reason=reason)

    def _ready(self, request: Request) -> Mover:
        """Return the mover of the memory. Raises Refused if this process cannot park here."""
        torch = sys.modules.get("torch")
        if torch is None:
            raise Refused("the process has not imported torch")
        if request.command not in (PARK, PREPARE, PARK_TOGETHER):
            raise Refused(f"the command {request.command} is unknown to this version of the hook")
        if request.command == PARK_TOGETHER and self._together is None:
            raise Refused("the process does not know that its gang is on several nodes: EBB_NODES is not set")
        if threading.current_thread() is not threading.main_thread():
            raise Refused("the training does not run in the main thread, so its signal handlers cannot be put off")
        distributed: Any = torch.distributed
        world = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
        if request.command == PARK and world > 1 and not request.at_step:
            raise Refused(f"the request names no step, and {world} ranks must park after the same one")
        if self._mover is None:
            devices = tuple(os.environ.get(_DEVICES, "cuda").split(","))
            self._mover = Mover(torch, devices)
        return self._mover

    def _sleep(self, request: Request, mover: Mover, moved: Moved) -> None:
        """Wait until the agent requests that the process resume, and memory allows it."""
        known: dict[str, Any] = {
            "bytes": moved.size,
            "storages": len(moved.storages),
            "residue": moved.residue,
            "left": moved.left,
            "pinned": mover.arena.pinned,
            "saves": self.saver is not None,
            "seconds": moved.seconds,
        }
        self._saved = False
        with suppress(Exception):  # `_has_resumed` tries again
            self._answer(request, PARKED, **known)
        with nullcontext() if self._together is None else self._together.while_parked():
            while not self._has_resumed(mover, moved, known):
                pass

    def _has_resumed(self, mover: Mover, moved: Moved, known: dict[str, Any]) -> bool:
        """Wait for a request, and answer it. Whatever fails, a process without its memory does not continue."""
        try:
            later = self._control.request()
            if later is None or later.number == self.seen:  # first: another thread may have read the wakeup
                self._control.wait(_WAIT)
                later = self._control.request()
            if later is None or later.number == self.seen:
                return False
            if later.command == SAVE:
                self._save(later, mover, moved, known)
                return False
            if later.command == LEAVE and self._saved and self.saver is not None:
                self.saver.leave()
            if later.command != RESUME:
                self._answer(later, PARKED, **known)
                return False
            try:
                seconds = mover.move_back(moved)
            except Refused as why:
                self._answer(later, PARKED, **known, reason=str(why))
                return False
        except Exception as error:
            _log.warning("the process is still parked: %s: %s", type(error).__name__, error)
            sleep(_WAIT)
            return False
        with suppress(Exception):
            self._answer(later, RUNNING, bytes=moved.size, seconds=seconds)
        return True

    def _save(self, request: Request, mover: Mover, moved: Moved, known: dict[str, Any]) -> None:
        """Let the program save its checkpoint. Whatever fails, the process stays parked."""
        try:
            if self.saver is None:
                raise Refused("the program does not say how its state is saved at this point (job.checkpointable does)")
            self.saver.save(mover.copies(moved))
        except Refused as why:
            self._answer(request, PARKED, **known, reason=f"it is not saved: {why}")
        except Exception as error:
            self._answer(request, PARKED, **known, reason=f"it is not saved: {type(error).__name__}: {error}")
        else:
            self._saved = True
            self._answer(request, SAVED, **known)

    def _answer(self, request: Request, state: str, **more: Any) -> None:
        self._control.answer({"request": request.number, "state": state, "pid": os.getpid(), "step": self._step, **more})
        self.seen = request.number

    def remove(self) -> None:
        """Remove the control file. If a process is killed, the agent removes it."""
        if self._together is not None:
            self._together.close()
        self._control.remove()

    def close(self) -> None:
        """Release the control file of the parent, in a forked child."""
        self.word.release()
        self._control.close()


_own: Parking | None = None
_COPIES = ("ebb_hook.parking", "ebb_inject.ebb_hook.parking")
"""Names of this module. A process may have a copy from the agent's folder, and another that belongs to the SDK."""


def parking_of_process() -> Parking | None:
    """Return the parking of this process, always the same one; None outside of Ebb. Raises OSError."""
    global _own  # one per process
    if _own is not None:
        return _own
    for name in _COPIES:
        theirs: Parking | None = getattr(sys.modules.get(name), "_own", None)
        if theirs is not None:
            return theirs
    if folder := os.environ.get("EBB_PARK_DIR"):
        with claiming:  # a child that is forked meanwhile would keep the file's lock without knowing it
            if _own is None:
                _own = Parking(folder)
                atexit.register(_at_exit)
    return _own


def find_parking() -> Parking | None:
    """Like `parking_of_process`, but an error is logged, and the process cannot park."""
    try:
        return parking_of_process()
    except OSError as error:
        _log.warning("the process cannot park: %s. The training goes on", error)
        return None


def _raise(noted: list[int]) -> None:
    for number in noted:
        signal.raise_signal(number)


def _at_exit() -> None:
    if _own is not None:
        _own.remove()


def _after_fork_in_child() -> None:
    global _own
    ranks.note_fork()
    if _own is not None:
        _own.close()
        _own = None


os.register_at_fork(after_in_child=_after_fork_in_child)
