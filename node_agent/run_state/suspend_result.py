"""What became of a request to suspend or resume a process."""

from enum import StrEnum


class Verdict(StrEnum):
    """What became of it; the caller decides what to do."""

    DONE = "done"
    REFUSED = "refused"
    """The process is as it was before the request."""
    LOST = "lost"
    """Nobody can say that the process will ever go on. Kill it, and restart the job from its last checkpoint."""
