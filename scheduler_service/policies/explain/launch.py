"""Why a job was launched in the configuration that it has, as its story tells it."""

from collections.abc import Iterable

from scheduler_service.core.model import EventKind, Job, JobEvent, JobState
from scheduler_service.core.model.configurations import why_chosen


def why_in_this_configuration(job: Job, story: Iterable[JobEvent]) -> str:
    """Why the policy chose the configuration of the job's last launch, such as the times that the policy compared. Empty: the
    job waits, or the policy compares nothing. If other runs had to leave first, the configuration was chosen when they were
    stopped and not when the job was placed."""
    if job.state in (JobState.QUEUED, JobState.SUSPENDED):
        return ""
    why = kept = ""
    for event in story:
        match event.kind:
            case EventKind.PREEMPTING:
                kept = why_chosen(event.text)
            case EventKind.EARMARK_DROPPED:
                kept = ""
            case EventKind.PLACED:
                why, kept = why_chosen(event.text) or kept, ""
    return why
