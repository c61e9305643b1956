"""Which jobs are sampled, and when: before all other jobs, within a part of the cluster (AlloX, sections 4.1 and 4.4).

A job that can run in several configurations, of which some have no estimate, is started in each of these for a short time.
What is measured is noted in the job's row (`core.operations.samples`); then the job takes part in the matching.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, dropwhile, islice, takewhile
from typing import NamedTuple

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import SkipSamples
from scheduler_service.core.model import Job, JobClass, Reason, StopReason
from scheduler_service.core.model.estimates import Sampling
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.settings import Settings as EngineSettings
from scheduler_service.core.model.values import SECOND, ZERO, Micros, Vector, add
from scheduler_service.core.operations.estimators import combine_estimates, is_impossible
from scheduler_service.core.state.queue_keys import OWN_LANES, unsampled_configurations
from scheduler_service.core.state.queue_order import QueueKey, QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.configuration_times import Known
from scheduler_service.policies.allox.site_scope import Site
from scheduler_service.policies.placing.first_fit import no_room

MOST_LOOKED_AT = 200
"""Jobs to be sampled that one look at the queue considers."""
_TOLD = (Reason.NO_ROOM, Reason.SAMPLED)
"""Reasons that say already that a job waits for its next sample."""


class Samples(NamedTuple):
    """How samples are taken."""

    share_ppm: int
    """How many of a job's steps a sample does, in millionths of all; 0: there are no samples."""
    most_us: Micros
    """How long a sample may run."""
    cluster_share: float
    """Which part of the cluster's CPUs, memory and devices all samples together may hold; one may always run."""


def sampled_first(job: Job, _memo: Memo | None, _settings: EngineSettings) -> QueueKey:
    """Jobs to be sampled are before all others, so that they are found without a look at those. Virtual clusters take no
    samples: there, trials are first, then the levels of priority."""
    later = job.spec.job_class is not JobClass.TRIAL if job.spec.vc else not unsampled_configurations(job)
    return later, -job.priority, job.id


FIRST = QueueOrder(sampled_first)


def to_be_sampled(state: State) -> Iterator[Job]:
    """Those queued jobs, in the order of the queue; trials first."""
    return chain.from_iterable(takewhile(unsampled_configurations, lane) for lane in _lanes(state))


def not_to_be_sampled(state: State) -> Iterator[Job]:
    """All other queued jobs, in the order of the queue; trials first."""
    return chain.from_iterable(dropwhile(unsampled_configurations, lane) for lane in _lanes(state))


def _lanes(state: State) -> Iterator[Iterator[Job]]:
    rows = state.jobs.rows
    return ((rows[key[-1]] for key in state.waiting("", lane)) for lane in OWN_LANES)


def start_samples(state: State, samples: Samples, known: Known, site: Site) -> Proposals:
    """Starts a sample of each job that has room for one."""
    jobs = [job for job in islice(to_be_sampled(state), MOST_LOOKED_AT) if job.id not in state.earmarks_of]
    if not jobs:
        return
    capacity = Vector(*state.free_resources.capacities(None).sum(axis=1).tolist())
    taken, full, has_slots = held_by_samples(state), set[int](), cache(site.has_slots)
    for job in jobs:
        needs, missing, started = known.ways_of(job).needs, unsampled_configurations(job), False
        for number in missing:
            if (need := needs[number]) in full:
                continue
            demand = known.specs[need].demand
            start = (
                site.place(job.in_configuration(number))
                if is_within_share(taken, demand, capacity, samples.cluster_share)
                else None
            )
            if start is None:
                full.add(need)
            elif (yield (replace(start, sample=Sampling(samples.share_ppm, samples.most_us)),)) is None:
                taken, started = add(taken, demand), True
                break
        if started:
            continue
        if any(map(has_slots, needs)) and not any(has_slots(needs[number]) for number in missing):
            yield (SkipSamples(job.id, missing, "no node that is open could run a sample"),)
        elif job.reason not in _TOLD and (wait := no_room(state, job)).reason is not job.reason:
            yield (wait,)


def held_by_samples(state: State) -> Vector:
    """Resources that samples hold, including those that are being stopped. Looks at all jobs that have a run."""
    held = ZERO
    for job_id in state.active:
        job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
        if job.sampling is not None or any(run.stop_reason is StopReason.SAMPLED for run in runs):
            for run in runs:
                held = add(held, run.demand)
    return held


def is_within_share(taken: Vector, more: Vector, capacity: Vector, share: float) -> bool:
    """Whether samples that hold `taken` may hold `more`. Of each resource the first one may hold any amount."""
    return all(not have or have + want <= share * whole for have, want, whole in zip(taken, more, capacity, strict=True))


# ---- for people --------------------------------------------------------------------------------------------------------


def times_known(job: Job) -> Iterable[str]:
    """Describe what is known of each configuration of a job."""
    missing = unsampled_configurations(job)
    for number, spec in enumerate(job.spec.in_each_configuration()):
        parts = [part for part in job.estimates if part.configuration == number]
        of = combine_estimates(parts)
        name = f"configuration {number}"
        if is_impossible(job, number):
            yield f"{name} never ({parts[-1].detail})"
        elif of.time_us:
            error = f", standard error {of.error_us / SECOND:.2g} s"
            yield f"{name} {of.time_us / SECOND:.0f} s ({' and '.join(source.name.lower() for source in of.sources)}{error})"
        elif spec.estimate_us:
            yield f"{name} {spec.estimate_us / SECOND:.0f} s (user)"
        else:
            yield f"{name} unknown ({'to be sampled' if number in missing else parts[-1].detail if parts else 'no sample'})"
