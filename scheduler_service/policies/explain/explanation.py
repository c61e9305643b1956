"""The parts of an explanation."""

from typing import NamedTuple

from scheduler_service.core.model import Decision, Job, Reason, RunKey
from scheduler_service.core.model.values import ZERO, Micros, Vector
from scheduler_service.core.state.state import State

AHEAD_SHOWN = 16
"""The most jobs that are named of those before a job, or of those in the cells that it waits for."""
SPARED_SHOWN = 16
"""The most jobs that are named of those that may not be preempted for the one that waits."""


class Blocker(NamedTuple):
    """One thing that keeps a job from starting. `need` is that of the task that fits nowhere; `free` is what the node that
    comes closest has."""

    reason: Reason
    detail: str = ""
    cause_job: int = 0
    need: Vector = ZERO
    node: int = 0
    free: Vector = ZERO
    nodes: int = 0
    usable: int = 0
    large_enough: int = 0
    holders: int = 0
    """How many jobs have the cells of its virtual cluster that it waits for."""
    holder_jobs: tuple[int, ...] = ()
    """The first of these: those of which it is known when they end at the latest, the soonest before the others."""
    first_end_us: Micros | None = None
    """When the first of them ends at the latest."""


class Victim(NamedTuple):
    key: RunKey
    score: float


class Estimate(NamedTuple):
    """When a job may start; `at_us` is None if that is unknown."""

    at_us: Micros | None
    basis: str
    unknown: int = 0


class Explanation(NamedTuple):
    blockers: tuple[Blocker, ...] = ()
    ahead: int = 0
    ahead_jobs: tuple[int, ...] = ()
    decision: Decision | None = None
    victims: tuple[Victim, ...] = ()
    estimate: Estimate | None = None
    joined: str = ""
    """The jobs that take turns with a running job now."""


def kept_waiting(job: Job) -> Blocker:
    """Why a job waits though it has room: its policy chooses which jobs start."""
    said = (
        "there is room, but the policy keeps the job waiting: it is done sooner elsewhere or later, or others have their turn"
    )
    return Blocker(Reason.NO_ROOM if job.reason is Reason.NONE else job.reason, said)


def waiting_for_victims(state: State, job: Job) -> Explanation:
    """Explain why a job that has earmarks waits."""
    leaving = tuple(Victim(key, 0.0) for key in _leaving(state, job))
    blocker = Blocker(Reason.WAITING_FOR_VICTIMS, f"{count_text(len(leaving), 'run')} leaving for it")
    return Explanation((blocker,), victims=leaving, estimate=_when_they_leave(state, leaving))


def number_of(count: int, what: str) -> str:
    """
    >>> number_of(1, "job"), number_of(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def count_text(count: int, what: str) -> str:
    """Format a count with its noun and verb.

    >>> count_text(1, "job"), count_text(2, "job")
    ('1 job is', '2 jobs are')
    """
    return f"{count} {what} is" if count == 1 else f"{count} {what}s are"


def _leaving(state: State, job: Job) -> list[RunKey]:
    return [key for i in sorted(state.earmarks_of[job.id]) for key in state.earmarks.rows[i].victims]


def _when_they_leave(state: State, leaving: tuple[Victim, ...]) -> Estimate:
    runs = [state.runs.rows[victim.key] for victim in leaving]
    if not runs:
        return Estimate(state.cluster.clock_us, "what it waits for is there")
    latest = max((run.stop_us or 0) + run.stop_grace_us for run in runs)
    return Estimate(latest, f"the grace periods of those that leave for it ({len(runs)}), at the longest")
