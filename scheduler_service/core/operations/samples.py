"""Samples: short launches that measure how long a job would take in a configuration (AlloX, section 4.1).

A sample begins when a policy places a job with `Place.sample`. While it runs, its node reports how many steps it has done. It
ends in one of these ways:

    the sample                      what is noted of the configuration                   the job
    did enough steps                the time on the line through two points of the step  queues again
    ran for as long as it may       the same                                             queues again
    did so without counting steps   that the time is unknown, of all that are not known  continues, no longer a sample
    failed                          that the configuration is impossible                 queues again, if it has another one

Whatever else stops the run (a cancel, a preemption, a lost node) ends the sample without a result, and the policy may place
another one.

The memory that samples used is the demand of a configuration for which the user has named none.
"""

from scheduler_service.core.allocation.transitions import stop_job
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import RunMeasured, SkipSamples
from scheduler_service.core.model import EventKind, Job, JobState, Reason, Run, RunPhase, StopReason
from scheduler_service.core.model.estimates import Estimate, Reading, SampledMemory, Sampling, Source
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.operations.estimators import from_readings
from scheduler_service.core.state.queue_keys import unsampled_configurations
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

FEWEST = 2
"""Steps of a sample, at least: a line takes two points."""
_PPM = 1_000_000


def is_enough(sampling: Sampling, steps: int, total: int) -> bool:
    """Whether a sample that has done this many steps of all is complete."""
    return total > 0 and steps >= max(FEWEST, -(-total * sampling.share_ppm // _PPM))


def is_news(sampling: Sampling, told: int, steps: int, total: int) -> bool:
    """Whether the engine is to hear of this many steps, after it has heard of `told`: of twice as many, so that it hears
    rarely, and of the end of the sample."""
    return steps > max(told, 1) and (steps >= 2 * told or is_enough(sampling, steps, total))


def begin_sample(sampling: Sampling, now: Micros) -> Sampling:
    """The sample when its process has begun."""
    return sampling._replace(until_us=now + sampling.most_us)


def run_measured(state: State, event: RunMeasured, now: Micros) -> None:
    """Takes what a node has measured of a sample. Nothing changes if the run is no sample."""
    job, run = state.jobs.rows.get(event.key.job_id), state.runs.rows.get(event.key)
    if job is None or run is None or job.sampling is None or run.phase is not RunPhase.RUNNING:
        return
    if state.nodes.rows[run.node].name != event.node or run.task:
        return
    sampling = _with_reading(job.sampling, event)
    if sampling is job.sampling:
        return
    job = with_changes(job, sampling=sampling)
    if is_enough(sampling, sampling.readings[-1].steps, sampling.total):
        _ends(state, now, job, run, sampling)
    else:
        state.put(state.jobs, job.id, job)


def _with_reading(sampling: Sampling, event: RunMeasured) -> Sampling:
    readings = sampling.readings or (Reading(1, event.first_us),)
    last = Reading(event.steps, event.elapsed_us)
    if last.steps <= readings[-1].steps or last.elapsed_us <= readings[-1].elapsed_us:
        return sampling
    memory = max(sampling.memory_mib, event.memory_mib)
    return sampling._replace(readings=(*readings, last), total=event.total, spread_ppm=event.spread_ppm, memory_mib=memory)


def cut_off(state: State, now: Micros, job: Job) -> None:
    """Ends a sample that has run for as long as it may."""
    runs, sampling = state.runs_of(job.id), job.sampling
    if sampling is None or not runs or runs[0].phase.exits_soon:
        state.put(state.jobs, job.id, with_changes(job, sampling=None))
        return
    _ends(state, now, job, runs[0], sampling)


def _ends(state: State, now: Micros, job: Job, run: Run, sampling: Sampling) -> None:
    """Notes what is known now, and stops the run. If nothing was measured, there is nothing to choose by, and a stop would only
    cost the work of a program that may not save: the run continues."""
    measured = _measured_estimates(job, sampling)
    parts = measured or _unknown(job, sampling)
    job = with_changes(job, sampling=None, estimates=(*job.estimates, *parts))
    if measured:
        stop_job(state, now, job, StopReason.SAMPLED, Reason.SAMPLED)
    else:
        state.put(state.jobs, job.id, job)
    for part in parts:
        log_event(state, now, job.id, EventKind.SAMPLED, run=run.run, node=run.node, text=describe(part))


def _measured_estimates(job: Job, sampling: Sampling) -> tuple[Estimate, ...]:
    """The estimate that follows from the readings; empty if they give none."""
    guess = from_readings(sampling.readings, sampling.total, sampling.spread_ppm / _PPM)
    if guess is None:
        return ()
    return (
        Estimate(
            job.configuration, Source.SAMPLE, round(guess.time), round(guess.error), sampling.memory_mib, steps=sampling.total
        ),
    )


def _unknown(job: Job, sampling: Sampling) -> tuple[Estimate, ...]:
    """Unknown times: a program that tells nothing in one configuration tells nothing in others, so it is not sampled again."""
    if len(sampling.readings) < FEWEST:
        why = f"the program counted fewer than {FEWEST} steps in {sampling.most_us / SECOND:g} s"
    else:
        why = "the program does not say how many steps the job has"
    numbers = dict.fromkeys((job.configuration, *unsampled_configurations(job)))
    return tuple(Estimate(number, Source.SAMPLE, detail=why) for number in numbers)


def skip_samples(state: State, action: SkipSamples, _now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None or job.state is not JobState.QUEUED:
        raise PlanRefused(f"job {action.job_id} is not queued")
    require(
        set(action.configurations) <= set(unsampled_configurations(job)),
        f"job {job.id} has been sampled in {action.configurations}",
    )
    parts = tuple(Estimate(number, Source.SAMPLE, detail=action.why) for number in action.configurations)
    state.put(state.jobs, job.id, with_changes(job, estimates=(*job.estimates, *parts)))


def without_failed_configuration(job: Job, how: str) -> Job | None:
    """The job without the configuration in which its sample has failed; None if it has no other one. `how`: what was seen."""
    part = Estimate(job.configuration, Source.SAMPLE, detail=f"its sample {how}", impossible=True)
    estimates = (*job.estimates, part)
    impossible = {one.configuration for one in estimates if one.impossible}
    if len(impossible) > len(job.spec.alternatives):
        return None
    return with_changes(job, estimates=estimates)


def describe(part: Estimate) -> str:
    """Describe to people what one source says."""
    name = f"configuration {part.configuration}"
    if part.impossible:
        return f"{name} is impossible: {part.detail}"
    if not part.time_us:
        return f"{name}: {part.detail}"
    memory = f", memory {part.memory_mib} MiB" if part.memory_mib else ""
    return f"{name} would take {part.time_us / SECOND:.4g} s, standard error {part.error_us / SECOND:.2g} s{memory}"


_MORE_PER_CENT = 25
_LEAST_MIB = 256
"""A demand is at least this much more than what was measured."""


def with_sampled_memory(job: Job) -> tuple[Job, str]:
    """The job, which has no active task, with the memory that its samples have measured, and text for the story."""
    spec, known, said = job.spec, list(job.sampled_memory), list[str]()
    done = {one.configuration for one in known}
    for sample in job.estimates:
        number = sample.configuration
        if sample.source is Source.SAMPLE and sample.memory_mib and number in spec.memory_left and number not in done:
            default = memory_of(job, number)
            now = sample.memory_mib + max(sample.memory_mib * _MORE_PER_CENT // 100, _LEAST_MIB)
            if now < default:
                spec = spec.with_memory(number, now)
                known.append(SampledMemory(number, now, default))
                said.append(f"configuration {number} asks for {now} MiB from now on, in place of {default} by default")
    return with_changes(job, spec=spec, sampled_memory=tuple(known)) if said else job, ", ".join(said)


def with_default_memory(job: Job) -> Job | None:
    """The job with the default memory for the configuration in which it ran; None: it had that."""
    for place, one in enumerate(job.sampled_memory):
        if one.configuration == job.configuration and one.memory_mib < one.default_mib:
            rest = job.sampled_memory[:place] + job.sampled_memory[place + 1 :]
            back = (*rest, one._replace(memory_mib=one.default_mib))
            return with_changes(job, spec=job.spec.with_memory(one.configuration, one.default_mib), sampled_memory=back)
    return None


def memory_of(job: Job, number: int) -> int:
    """MiB that the one task of this configuration asks for."""
    return (job.spec.alternatives[number - 1] if number else job.spec).demand.memory_mib
