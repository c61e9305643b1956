"""How long a grace period a job needs, by what its saves take."""

import logging
import math
from collections.abc import Mapping

_log = logging.getLogger("client_sdk.training")


class Grace:
    """Compares the measured time of a stop with the grace period of the job, EBB_GRACE_SECONDS, and warns once."""

    def __init__(self, environment: Mapping[str, str], background: bool) -> None:
        given = environment.get("EBB_GRACE_SECONDS")
        self.given = float(given) if given else None
        """Seconds from the stop signal to the kill; None: unknown, as outside of Ebb."""
        self._saves = 2 if background else 1
        self._warned = False
        self.needed = 0.0
        """Seconds that a stop takes at most: the rest of a step, a save under way in the background, and the save itself."""

    def measured(self, save_seconds: float, step_seconds: float) -> None:
        """Takes the durations of a complete save and of the longest step."""
        self.needed = max(self.needed, self._saves * save_seconds + step_seconds)
        given = "unknown" if self.given is None else f"{self.given:g} s"
        _log.info("a save takes %.2f s, a stop at most %.2f s; the grace period is %s", save_seconds, self.needed, given)
        if self.given is not None and self.needed > self.given and not self._warned:
            self._warned = True
            _log.warning(
                "a stop takes up to %.1f s, and the grace period is %g s: the job may be killed before it has saved. "
                "Submit it with `--grace %ds`, or save periodically (every_steps)",
                self.needed,
                self.given,
                math.ceil(self.needed * 1.5),
            )
