"""Operations: changes of a running job that take several phases, each of which is an event (ADR 43).

A new leader goes on from the phase that it finds in the row. The row is deleted when the operation is over; what its phases
took is in the job's story and in the rows of its runs.
"""

from scheduler_service.core.model.enums import OperationKind, OperationPhase
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.runs import RunKey
from scheduler_service.core.model.values import Micros

OBSERVING = frozenset({OperationKind.VACATE, OperationKind.RESIZE})
"""Kinds that follow a stop of a job, and hold up nothing (`allocation.vacating`)."""
PARKED_FROM = "parked_from"
"""Noted of a migration whose job is parked: the phase of the park, to which the job returns if it does not go elsewhere."""
MOVES = "moves"
"""Noted of a park: how often its job was to go elsewhere, and did not."""


@dataclass(frozen=True)
class Operation:
    """A job has one at a time."""

    id: int
    kind: OperationKind
    phase: OperationPhase
    job_id: int
    source: RunKey
    """The run that it changes: the first task of the launch."""
    begun_us: Micros
    phase_us: Micros
    """When it came to its phase."""
    target: RunKey | None = None
    """The run that takes the place of `source`, if there is to be one."""
    deadline_us: Micros | None = None
    """When its phase is given up; None: the phase may take any time."""
    undo: tuple[int | str, ...] = ()
    """From what it is undone, in words of its kind."""
    more: tuple[tuple[str, int | str], ...] = ()
    """What else its kind has to remember, by name, in the order of names."""

    @property
    def is_of_parked(self) -> bool:
        """Whether it moves a job that is parked."""
        return self.kind is OperationKind.MIGRATE and bool(self.noted(PARKED_FROM))

    def noted(self, name: str, usual: int | str = 0) -> int | str:
        """What is remembered by this name; `usual` if nothing is."""
        return next((value for known, value in self.more if known == name), usual)
