"""The grace period of a job: its user sets it, or it follows from how long the saves of the job take.

A run measures its saves and asks for a grace period that is long enough. A job whose user has given none gets it, up to the
site's limit, for every stop from then on, also for that of the run that asks. The score of FitGpp counts it at once.
"""

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import GraceWanted, StepTooLong
from scheduler_service.core.model import EventKind, Job, JobSpec
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def is_more(job: Job, grace_us: Micros) -> bool:
    """Whether the engine is to hear that a run of the job asks for this: for more than the job has, and for a quarter more than
    its runs have asked for before, so that it hears rarely."""
    return grace_us > job.spec.grace_us and 4 * grace_us >= 5 * job.grace_wanted_us


def grace_wanted(state: State, event: GraceWanted, now: Micros) -> None:
    """Takes the grace period that a run asks for. Nothing changes if the run has ended, or asks for less than before."""
    job, run = state.jobs.rows.get(event.key.job_id), state.runs.rows.get(event.key)
    if job is None or run is None or state.nodes.rows[run.node].name != event.node or not is_more(job, event.grace_us):
        return
    job = with_changes(job, grace_wanted_us=event.grace_us)
    kind = EventKind.GRACE_TOO_SHORT
    most, has = state.settings.grace_limit_us, seconds(job.spec.grace_us)
    if not job.grace_follows:
        said = f"its saves ask for a grace period of {seconds(event.grace_us)}, and its user has given it {has}"
    elif event.grace_us > most:
        said = (
            f"its saves ask for a grace period of {seconds(event.grace_us)}, the site allows {seconds(most)}, and it keeps "
            f"{has}: save periodically, or set one by `ebb update --grace`"
        )
    else:
        said = f"grace period {has} -> {seconds(event.grace_us)}: its saves take so long"
        job, kind = job.with_grace(event.grace_us), EventKind.UPDATED
    log_event(state, now, job.id, kind, run=job.run, text=said)
    state.put(state.jobs, job.id, job)


def step_too_long(state: State, event: StepTooLong, now: Micros) -> None:
    """Warns that a stop in such a step may end the run before it has saved, unless the grace period has become longer since."""
    job, run = state.jobs.rows.get(event.key.job_id), state.runs.rows.get(event.key)
    if job is None or run is None or event.took_us <= job.spec.grace_us:
        return
    what = "an evaluation" if event.evaluated else "a step"
    took = f"{what} takes {event.took_us / SECOND:.3g} s, the grace period is {seconds(job.spec.grace_us)}"
    text = f"{took}: a stop may end the run before it has saved"
    log_event(state, now, job.id, EventKind.GRACE_TOO_SHORT, run=run.run, node=run.node, text=text)


def changed_by_user(state: State, job: Job, grace_us: Micros | None, follows: bool) -> tuple[Job, str]:
    """The job with this grace period, or with one that follows from its saves; and what the story says of it, or "".

    Raises FailedPrecondition for a grace period that leaves no time for the checkpoint signal or command of the job.
    """
    if follows:
        wanted, settings = job.grace_wanted_us, state.settings
        grace_us = max(settings.default_grace_us, wanted if wanted <= settings.grace_limit_us else 0)
    if grace_us is None or (grace_us == job.spec.grace_us and follows is job.grace_follows):
        return job, ""
    check_time_to_save(job.spec, grace_us)
    said = f"grace period {seconds(job.spec.grace_us)} -> {seconds(grace_us)}" + (
        ", which follows from its saves" if follows else ""
    )
    return with_changes(job if grace_us == job.spec.grace_us else job.with_grace(grace_us), grace_follows=follows), said


def check_time_to_save(spec: JobSpec, grace_us: Micros) -> None:
    least = int(spec.checkpoint_signal.partition("@")[2] or 0) * SECOND
    if (spec.checkpoint_signal or spec.checkpoint_command) and grace_us < max(least, 1):
        raise FailedPrecondition(
            "GRACE_TOO_SHORT",
            f"a grace period of {seconds(grace_us)} leaves no time for the job's checkpoint signal or command; "
            "give a longer one",
        )


def seconds(micros: Micros) -> str:
    return f"{micros / SECOND:g} s"
