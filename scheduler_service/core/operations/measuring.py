"""Introspection: what nodes measure of running jobs, and the profile that follows (Gandiva, section 4.1).

The latest measurement of each run is in a table that is not durable. The profile of a job is, and is written only when it
changes by more than measurements differ from each other.
"""

from scheduler_service.core.messages import MiniBatchMeasured, SwitchingMeasured
from scheduler_service.core.model import Job, Run
from scheduler_service.core.model.profiles import PPM, Measured, Profile
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import Micros
from scheduler_service.core.sharing.equations import executes_alone, time_share
from scheduler_service.core.state.state import State

FEWEST = 20
"""Mini-batches behind a time that counts."""
LEAST_CONFIDENCE = 500_000
"""In millionths. A less certain measurement changes no profile and decides no probe."""
_MATERIAL = 10
"""A profile is written again if a part of it changes by more than one part in this many."""
_UTILISATION = PPM // 20
"""The same for a utilization."""


def mini_batch_measured(state: State, event: MiniBatchMeasured, now: Micros) -> None:
    """Takes what a node has measured of a run. Nothing changes if the run does not run there."""
    job, run = state.jobs.rows.get(event.key.job_id), state.runs.rows.get(event.key)
    if job is None or run is None or event.key.task or run.phase.exits_soon or run.is_parked or run.started_us is None:
        return
    if state.nodes.rows[run.node].name != event.node or event.mini_batch_us <= 0:
        return
    group = state.share_groups.rows.get(run.group)
    measured = _updated_measurement(state, event, run, group, now)
    state.put(state.measured, run.key, measured)
    members = () if group is None else [state.runs.rows[key] for key in group.members()]
    alone = group is None or executes_alone(group.rows, run, members)
    if alone and is_certain(measured) and job.sampling is None:
        _note(state, job, run, measured)


def switching_measured(state: State, event: SwitchingMeasured, _now: Micros) -> None:
    """Takes what a node says of the parks and resumes of a run. Nothing changes if the run takes no turns there."""
    run = state.runs.rows.get(event.key)
    if run is None or not run.group or run.phase.exits_soon or state.nodes.rows[run.node].name != event.node:
        return
    if min(event.switching) >= 0 and event.switching != state.switching.rows.get(run.key):
        state.put(state.switching, run.key, event.switching)


def is_certain(measured: Measured) -> bool:
    """Whether a decision may go by the measurement."""
    return measured.settled and measured.count >= FEWEST and measured.confidence_ppm >= LEAST_CONFIDENCE


def plan_of(group: ShareGroup | None) -> tuple[int, int]:
    """Identifies the share plan under which a run is measured."""
    return (0, 0) if group is None else (group.id, group.generation)


def _updated_measurement(state: State, event: MiniBatchMeasured, run: Run, group: ShareGroup | None, now: Micros) -> Measured:
    before, plan = state.measured.rows.get(run.key), plan_of(group)
    memory = event.memory_mib
    if before is not None and before.plan == plan:
        since, memory = before.since_us, max(memory, before.memory_mib)
    elif run.shared or run.started_us is None:
        since = now
    else:
        since = run.started_us  # it was in no group ever
    share = 1 if group is None else time_share(group.rows, run.key)
    settled = (now - since) * share >= event.count * event.mini_batch_us
    utilisation = min(event.utilisation_ppm, PPM)
    return Measured(now, event.mini_batch_us, event.count, event.confidence_ppm, memory, utilisation, plan, since, settled)


def _note(state: State, job: Job, run: Run, measured: Measured) -> None:
    """Writes the job's profile, if it differs from the one before."""
    before = job.profile
    devices = job.launch_spec.demand.devices
    model = state.devices.rows[run.node, run.devices[0]].model if run.given else ""
    alike = before is not None and (before.devices, before.model) == (devices, model)
    memory, utilisation = measured.memory_mib, measured.utilisation_ppm
    if alike and before is not None:  # what is not known now was known before
        memory, utilisation = max(memory, before.memory_mib), before.utilisation_ppm if utilisation < 0 else utilisation
    best = min(measured.mini_batch_us, before.best_us) if alike and before is not None else measured.mini_batch_us
    new = Profile(measured.mini_batch_us, memory, utilisation, devices, model, best)
    if before is None or not alike or _differs(before, new):
        state.put(state.jobs, job.id, with_changes(job, profile=new))


def _differs(before: Profile, new: Profile) -> bool:
    return (
        abs(new.mini_batch_us - before.mini_batch_us) * _MATERIAL > before.mini_batch_us
        or (new.memory_mib - before.memory_mib) * _MATERIAL > before.memory_mib
        or abs(new.utilisation_ppm - before.utilisation_ppm) > _UTILISATION
        or (new.utilisation_ppm < 0) != (before.utilisation_ppm < 0)
    )
