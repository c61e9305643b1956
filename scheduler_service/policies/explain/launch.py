"""Why a job was launched in the configuration that it has, and why it holds its devices as it does, as its story tells it, or
the share group that it is in."""

from collections.abc import Iterable

from scheduler_service.core.model import EventKind, Job, JobEvent, JobState, Reason
from scheduler_service.core.model.configurations import why_chosen
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.park_lower_priority import TAKES_ITS_PLACE


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


def why_it_holds_devices_so(job: Job, story: Iterable[JobEvent]) -> str:
    """Which stage of its policy decided last how the running job holds its devices, and why: that it takes turns (overload), is
    packed or moved (introspection). Empty: nothing of it was decided since it was placed (others may have joined it: see
    `joined_by`), or its user moved it."""
    if job.state is not JobState.RUNNING:
        return ""
    why = before = ""
    for event in story:
        match event.kind:
            case EventKind.PLACED if event.reason is not Reason.MIGRATED:
                why = f"overload: {event.text}" if "takes turns" in event.text else ""
            case EventKind.PROBED:
                why = f"introspection (packing): {event.text}"
            case EventKind.MIGRATING:
                stage = "overload" if TAKES_ITS_PLACE in event.text else "introspection (moves)"
                before, why = why, f"{stage}: {event.text}" if ": " in event.text else ""
            case EventKind.MIGRATION_FAILED:
                why = before
    return why


def joined_by(state: State, job: Job) -> str:
    """Which jobs take turns with it, by decision of the policy. Their stories say why, and its own does not if they came later.
    Empty: none does."""
    found = set[int]()
    for run in state.runs_of(job.id) if not job.spec.shares else ():
        group = state.share_groups.rows.get(run.group)
        if group is not None and not group.open and len(group.rows) > 1:
            others = (state.runs.rows[key] for row in group.rows if run.key not in row.runs for key in row.runs)
            found |= {other.job_id for other in others if other.node == run.node and {*other.devices} & {*run.devices}}
    if not found:
        return ""
    names = ", ".join(map(str, sorted(found)))
    return f"overload: {'jobs' if len(found) > 1 else 'job'} {names} came to take turns with it"
