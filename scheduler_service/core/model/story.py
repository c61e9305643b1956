"""A job's story, and why victims were chosen."""

from scheduler_service.core.model.enums import EventKind, Reason
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.runs import RunKey
from scheduler_service.core.model.values import Micros, Vector


@dataclass(frozen=True, slots=True)
class CandidateScore:
    """One run as a preemption decision saw it (Eqns 1-4)."""

    key: RunKey
    node: int
    demand: Vector
    node_free: Vector
    size: float
    grace_us: Micros
    score: float
    preempted_for_trial: int
    sufficient: bool
    chosen: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Why these victims: kept in the story of the trial and of each victim."""

    trial: int
    node: int
    demand: Vector
    rule: str
    s: float
    cap: int
    max_size: float
    max_grace_us: Micros
    considered: int
    candidates: tuple[CandidateScore, ...]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A line of a job's story."""

    job_id: int
    at_us: Micros
    kind: EventKind
    run: int = 0
    node: int = 0
    reason: Reason = Reason.NONE
    cause_job: int = 0
    exit_code: int = 0
    exit_signal: int = 0
    text: str = ""
    decision: Decision | None = None
