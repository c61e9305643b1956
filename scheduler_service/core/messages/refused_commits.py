"""Messages that help to find out why a commit was refused: parts of a step, and the event that sets a job aside."""

from typing import NamedTuple

from scheduler_service.core.messages.actions import (
    AddEarmark,
    BeginProbe,
    EndProbe,
    GiveWay,
    Place,
    Plan,
    Preempt,
    Reclaim,
    Share,
)
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_keys import Deadline

Due = tuple[Micros, Deadline, tuple[int | str, ...]]
"""A deadline, as `State.deadlines` has it."""


class Part(NamedTuple):
    """The work that a step does besides its events; None: all that is due."""

    deadlines: tuple[Due, ...] | None = None
    """Passed deadlines that it acts on."""
    resumes: tuple[int, ...] | None = None
    """Waiting operations whose parked runs it resumes."""
    plans: int | None = None
    """Maximum number of plans of the policy that it carries out."""


WHOLE = Part()
EVENTS_ONLY = Part(deadlines=(), resumes=(), plans=0)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A job for which work cannot be made durable: it is held until a user releases it."""

    job_id: int
    why: str


def beneficiaries(plan: Plan) -> tuple[int, ...]:
    """Return the jobs that a plan benefits: those that it starts; else those for which others stop; else those it changes."""
    starts = [action.job_id for action in plan if isinstance(action, Place | AddEarmark)]
    claims = [action.for_job for action in plan if isinstance(action, Preempt | Reclaim | GiveWay)]
    changes = [job_id for action in plan if (job_id := getattr(action, "job_id", 0))]
    shares = [
        job_id
        for action in plan
        for job_id in (
            action.jobs
            if isinstance(action, BeginProbe | EndProbe)
            else [key.job_id for row in action.rows for key in row.runs]
            if isinstance(action, Share)
            else ()
        )
    ]
    return tuple(dict.fromkeys(starts or claims or changes or shares))
