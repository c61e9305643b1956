"""Errors of the engine: refusals, which leave the state as it was, and broken invariants."""

from collections.abc import Iterable


class Refused(Exception):
    """The request cannot be carried out: `reason` is a stable name; the message says what is wrong, where, and what to do."""

    def __init__(self, reason: str, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.metadata = metadata


class NotFound(Refused):
    """An object that the request names does not exist."""


class AlreadyExists(Refused):
    """The name is taken by something else."""


class FailedPrecondition(Refused):
    """The object exists, but in a state in which this cannot be done."""


class ResourceExhausted(Refused):
    """A limit on how many there may be at a time is reached."""


def no_such_vc(name: str, known: Iterable[str]) -> NotFound:
    there = ", ".join(sorted(known)) or "none"
    return NotFound("NO_SUCH_VC", f"there is no virtual cluster {name!r}; there are: {there}", vc=name)


def no_virtual_clusters() -> FailedPrecondition:
    return FailedPrecondition(
        "NO_VIRTUAL_CLUSTERS",
        "this scheduler runs without virtual clusters; have it started with `virtual_clusters: true` in its configuration",
    )


class PlanRefused(Exception):
    """A policy proposed an action that is not possible (any more); the whole plan is undone."""


def require(holds: bool, otherwise: str) -> None:
    """Raises PlanRefused, saying why, unless it holds."""
    if not holds:
        raise PlanRefused(otherwise)


class Broken(AssertionError):
    """An invariant does not hold: a fault in Ebb itself."""


def claim(holds: bool, otherwise: str) -> None:
    """Raises Broken, saying what is wrong, unless it holds."""
    if not holds:
        raise Broken(otherwise)


class LookupNeeded(NotFound):
    """A request names jobs that are not live: the caller looks up how they ended, and sends the request again."""

    def __init__(self, jobs: tuple[int, ...]) -> None:
        super().__init__("NO_SUCH_JOB", f"there is no job {jobs[0]}, which this was to wait for", job_id=str(jobs[0]))
        self.jobs = jobs
