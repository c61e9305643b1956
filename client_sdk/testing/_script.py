"""How the test says that runs end."""

from collections.abc import Callable
from dataclasses import dataclass

from client_sdk.models import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ends."""

    exit_code: int = 0
    exit_signal: int = 0
    """The signal that ended it, or 0."""
    done: bool = False
    """It reported in EBB_DONE_FILE that its work is done: with exit code 0 it has finished, even after a stop signal."""
    launch_error: str = ""
    """Why the command could not be executed; empty if it was."""
    output: str = ""
    """Its output, for `Client.logs`."""


Script = Callable[[Job], Outcome | None]
"""Called with each job when a run starts; returns how the run ends, or None to leave it running. It must not call the
cluster."""


def succeed(_job: Job) -> Outcome:
    """The default script of a fake cluster: every job succeeds."""
    return Outcome()
