"""The hook for PyTorch's optimizers: counts the steps of a program that does not count them itself, and parks the program.

PyTorch calls the hook after each `step` of each optimizer. One rule decides which of these calls counts: an iteration begins
when an optimizer steps that has already stepped in the current iteration. A single optimizer begins an iteration with each
step. If several optimizers step in turn, the first begins it. If an optimizer steps more often than the others, each of its
steps is an iteration.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import device_memory, parking
from .steps import Steps, rank_of

if TYPE_CHECKING:
    from types import FrameType

_COUNTER = "client_sdk.training.step_counter"
"""The SDK's module, which has a counter in `_own` if the program counts its steps."""
_log = logging.getLogger("ebb_hook")


class Hook:
    """The hook of this process."""

    def __init__(self, torch: Any) -> None:
        """Register the hook."""
        self._torch = torch
        self._is_compiling = torch.compiler.is_compiling
        self._own = Steps(os.environ.get("EBB_STEPS_FILE") or None, rank_of(os.environ), "ebb_hook")
        self.counter = self._own
        """The counter of the steps: the hook's own, or the program's."""
        self._forget()
        self._handle = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self.note_step)

    def _forget(self) -> None:
        """Reset the state that belongs to one process."""
        self._seen: set[int] = set()
        """Optimizers that have stepped in this iteration. Empty before the first step."""
        self._parking: parking.Parking | None = None
        self._armed: Any = None
        """The hook for the next forward pass, if a request waits for one."""
        self._armed_for: tuple[int, int] | None = None
        """The command and the step of that request."""

    def note_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Called after each step of each optimizer. Raises nothing of its own."""
        if self._is_compiling():  # a hook in compiled code would break its graph, which the program may have forbidden
            return
        try:
            caller = sys._getframe(1).f_back
            if caller is not None and caller.f_code.co_name == "step" and _is_step_of(optimizer, caller):
                return
            seen, key = self._seen, id(optimizer)
            if key in seen:
                seen.clear()
                seen.add(key)
            elif seen:
                seen.add(key)
                return
            else:
                seen.add(key)
                self._parking = parking.find_parking()
            if self.counter is self._own:
                if _COUNTER in sys.modules:
                    self._yield_to_program()
                self._own.advance()
            found = self._parking
            if found is None or found.word[0] == found.seen:
                self._disarm()
                return
        except Exception as error:
            self._disable(error)
            return
        due = found.is_due(self.counter)  # outside, since signal handlers may raise here
        if not due:
            self._disarm()
            return
        if self._armed is None or self._armed_for != due:  # it may be armed for a request that is no longer current
            self._disarm()
            try:
                register = self._torch.nn.modules.module.register_module_forward_pre_hook
                self._armed, self._armed_for = register(self._before_forward), due
            except Exception as error:
                self._disable(error)
            return
        # An iteration has passed without a forward pass of a module.
        self._disarm()
        found.at_boundary(self.counter)

    def _before_forward(self, _module: Any, _args: Any) -> None:
        """Park before the first forward pass after a step, when activations and usually gradients are gone."""
        found = self._parking
        if self._is_compiling():
            return
        if found is not None and threading.current_thread() is not threading.main_thread():
            return
        self._disarm()
        if found is not None:
            found.at_boundary(self.counter)

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.remove()
            self._armed = self._armed_for = None

    def _yield_to_program(self) -> None:
        """Stop counting if the program counts its own steps."""
        if (theirs := getattr(sys.modules[_COUNTER], "_own", None)) is not None:
            self._own.retire()
            self.counter = theirs

    def _disable(self, error: Exception) -> None:
        _log.warning("the hook is off: %s: %s. The training goes on", type(error).__name__, error)
        self._handle.remove()

    def reset_after_fork(self) -> None:
        """Runs in a forked child, which has no control file yet."""
        self._disarm()
        self._forget()


def _is_step_of(optimizer: Any, frame: FrameType) -> bool:
    """Whether the frame is a `step` of the same optimizer: that of a derived class that calls its base class."""
    names = frame.f_code.co_varnames
    return bool(names) and frame.f_locals.get(names[0]) is optimizer


hook: Hook | None = None
"""The hook of this process."""


def install(torch: Any) -> None:
    """Register the hook, once."""
    global hook  # one per process
    if hook is None:
        device_memory.set_limit(torch)
        hook = Hook(torch)


def _after_fork_in_child() -> None:
    if hook is not None:
        hook.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
