"""How long a grace period a job needs, by what its saves take."""

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger("client_sdk.training")
_MARGIN = 1.5
"""A later save may take longer than those that were measured."""


class Grace:
    """Compares the measured time of a stop with the grace period of the job, EBB_GRACE_SECONDS.

    If that is too short, it asks for a longer one in EBB_GRACE_FILE, and warns once.
    """

    def __init__(self, environment: Mapping[str, str], background: bool) -> None:
        given = environment.get("EBB_GRACE_SECONDS")
        self.given = float(given) if given else None
        """Seconds from the stop signal to the kill; None: unknown, as outside of Ebb."""
        file = environment.get("EBB_GRACE_FILE")
        self._file = Path(file) if file else None
        self._saves = 2 if background else 1
        self._save = self._step = 0.0
        """The longest that were measured, in seconds."""
        self._warned = False
        self._asked = 0
        self.needed = 0.0
        """Seconds that a stop takes at most: the rest of a step, a save under way in the background, and the save itself."""

    def note_durations(self, save_seconds: float, step_seconds: float) -> None:
        """Takes the durations of a complete save and of the longest step."""
        self._save, self._step = max(self._save, save_seconds), max(self._step, step_seconds)
        self.needed = self._saves * self._save + self._step
        given = "unknown" if self.given is None else f"{self.given:g} s"
        _log.info("a save takes %.2f s, a stop at most %.2f s; the grace period is %s", save_seconds, self.needed, given)
        if self.given is None or self.needed <= max(self.given, self._asked):
            return
        wanted = self._asked = math.ceil(self.needed * _MARGIN)
        self._ask(wanted)
        if not self._warned:
            self._warned = True
            _log.warning(
                "a stop takes up to %.1f s, and the grace period is %g s: the job may be killed before it has saved. "
                "It asks for %d s, and gets them if it was submitted without `--grace` and the site allows as much. Otherwise "
                "use `ebb update --grace %ds`, or save periodically (every_steps)",
                self.needed,
                self.given,
                wanted,
                wanted,
            )

    def step_took(self, seconds: float) -> None:
        """Takes the time between two boundaries, an evaluation included: a stop waits for the second one. Cheap."""
        if seconds > self._step and self.given is not None and self._saves * self._save + seconds > self.given:
            self.note_durations(self._save, seconds)

    def _ask(self, seconds: int) -> None:
        """Asks for a longer grace period. A full disk does not stop the training."""
        if self._file is not None:
            with suppress(OSError):
                new = self._file.with_name(f".{self._file.name}.new")
                new.write_text(f"{seconds}\n", encoding="ascii")
                new.replace(self._file)
