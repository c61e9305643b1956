"""Saving in a thread of its own, one save at a time."""

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("client_sdk.training")


class Background:
    """Runs one save at a time. The interpreter does not end before the save has."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        """Why the last save failed; whoever reports the failure sets it to None."""

    def start(self, save: Callable[[], object]) -> None:
        """Waits for the save before, and begins this one."""
        self.wait()

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

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()
