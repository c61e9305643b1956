"""What finds out why a commit was refused: steps that do a part of what is to be done, and the event that sets a job aside."""

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
    """What a step does beside its events; None: all that is to be done."""

    deadlines: tuple[Due, ...] | None = None
    """Those that it acts on, of those that have passed."""
    resumes: tuple[int, ...] | None = None
    """The operations whose parked runs it resumes, of those that wait."""
    plans: int | None = None
    """How many plans of the policy it carries out at most."""


WHOLE = Part()
EVENTS_ONLY = Part(deadlines=(), resumes=(), plans=0)


@dataclass(frozen=True, slots=True)
class SetAside:
    """What would be done for a job cannot be made durable: the job is held, until somebody releases it."""

    job_id: int
    why: str


def beneficiaries(plan: Plan) -> tuple[int, ...]:
    """The jobs for which a plan acts: those that it starts; else those for which others stop; else those that it changes."""
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
