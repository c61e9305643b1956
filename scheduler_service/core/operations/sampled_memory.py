"""Memory by samples: the demand of a configuration for which the user has named none (AlloX, section 4.1).

Such a configuration has the memory that goes with its devices by default, which is mostly far more than it uses. A sample that
was measured replaces that by what its run used, and a quarter more, as it saw only the first part of the work. If a later run
is killed because it needs more memory, the job gets its default back and resumes from its last save. This is no failure.
"""

from scheduler_service.core.model import Job
from scheduler_service.core.model.estimates import SampledMemory, Source
from scheduler_service.core.model.rows import changed

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
    return changed(job, spec=spec, sampled_memory=tuple(known)) if said else job, ", ".join(said)


def with_default_memory(job: Job) -> Job | None:
    """The job with the default memory for the configuration in which it ran; None: it had that."""
    for place, one in enumerate(job.sampled_memory):
        if one.configuration == job.configuration and one.memory_mib < one.default_mib:
            rest = job.sampled_memory[:place] + job.sampled_memory[place + 1 :]
            back = (*rest, one._replace(memory_mib=one.default_mib))
            return changed(job, spec=job.spec.with_memory(one.configuration, one.default_mib), sampled_memory=back)
    return None


def memory_of(job: Job, number: int) -> int:
    """MiB that the one task of this configuration asks for."""
    return (job.spec.alternatives[number - 1] if number else job.spec).demand.memory_mib
