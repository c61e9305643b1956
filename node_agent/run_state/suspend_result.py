"""The result of a request to suspend or resume a process."""

from enum import StrEnum


class Verdict(StrEnum):
    """The result; the caller decides what to do."""

    DONE = "done"
    REFUSED = "refused"
    """The process is as it was before the request."""
    LOST = "lost"
    """It is unknown whether the process can ever continue. Kill it, and restart the job from its last checkpoint."""
