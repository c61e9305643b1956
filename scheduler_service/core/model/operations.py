"""Operations: changes of a running job that take several phases, each of which is an event (ADR 43).

A new leader resumes from the phase that it finds in the row. The row is deleted when the operation has ended; how long its
phases took is in the job's story and in the rows of its runs.
"""

from scheduler_service.core.model.enums import OperationKind, OperationPhase
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.runs import RunKey
from scheduler_service.core.model.values import Micros

OBSERVING = frozenset({OperationKind.VACATE, OperationKind.RESIZE})
"""Kinds that only follow a stop of a job, and block nothing (`allocation.vacating`)."""
PARKED_FROM = "parked_from"
"""Note on the migration of a parked job: the phase of the park, to which the job returns if it does not move."""
MOVES = "moves"
"""Note on a park: how many times its job was to move to another node, and did not."""


@dataclass(frozen=True)
class Operation:
    """A change of a job that takes several phases. A job has at most one at a time."""

    id: int
    kind: OperationKind
    phase: OperationPhase
    job_id: int
    source: RunKey
    """The run that it changes: the first task of the launch."""
    begun_us: Micros
    phase_us: Micros
    """When it entered its phase."""
    target: RunKey | None = None
    """The run that is to replace `source`, if any."""
    deadline_us: Micros | None = None
    """When its phase is given up; None: the phase has no time limit."""
    undo: tuple[int | str, ...] = ()
    """Data from which it is undone, in the format of its kind."""
    more: tuple[tuple[str, int | str], ...] = ()
    """Other data that its kind has to remember, by name, in order of names."""

    @property
    def is_of_parked(self) -> bool:
        """Whether the operation moves a parked job."""
        return self.kind is OperationKind.MIGRATE and bool(self.note_of(PARKED_FROM))

    def note_of(self, name: str, usual: int | str = 0) -> int | str:
        """Return what is remembered under this name; `usual` if nothing is."""
        return next((value for known, value in self.more if known == name), usual)
