"""Saving in a thread of its own, one save at a time."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

_log = logging.getLogger("client_sdk.training")


class Background:
    """Runs one save at a time. The interpreter does not begin to end before the save has."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._awaited_at_exit = False
        self.failure: Exception | None = None
        """The error of the last save; set to None once it has been reported."""

    def start(self, save: Callable[[], object]) -> None:
        """Wait for the save before, and start this one."""
        self.wait()
        self._have_exit_wait()

        def work() -> None:
            try:
                save()
            except Exception as error:
                self.failure = error
                text = "the checkpoint could not be written in the background: %s: %s. The one before it is whole"
                _log.warning(text, type(error).__name__, error)

        self._thread = threading.Thread(target=work, name="ebb-checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Returns when no save is under way."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _have_exit_wait(self) -> None:
        """Python ends executors before it waits for threads, and a save needs one."""
        if self._awaited_at_exit:
            return
        self._awaited_at_exit = True
        import concurrent.futures.thread  # noqa: F401 (what registers later runs earlier)

        with suppress(RuntimeError):  # the interpreter ends already
            threading._register_atexit(self.wait)  # type: ignore[attr-defined] # atexit is too late

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()
