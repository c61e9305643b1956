"""How the configurations of a job are shown."""

from client_sdk.cli import output
from client_sdk.models import Configuration, Job
from client_sdk.units import format_memory


def launched(job: Job) -> Configuration:
    """What its current or last run has; before the first, the spec's own."""
    found = job.spec.configurations
    return found[job.configuration] if job.configuration < len(found) else found[0]


def brief(job: Job) -> str:
    """Such as "1: 2 V100 and 4 CPUs"; - for a job that has but one, or that has not run."""
    return chosen(job) if job.spec.alternatives and job.run else "-"


def chosen(job: Job) -> str:
    """Such as "1: 2 V100 and 4 CPUs"."""
    return f"{job.configuration}: {launched(job)}"


def _expected(job: Job, number: int) -> list[str]:
    """Such as "(118 s, standard error 13 s, by sample)"."""
    of = next((one for one in job.estimates if one.configuration == number), None)
    if of is None:
        return []
    if of.impossible:
        return [f"(impossible: {of.detail})"]
    if of.time is None:
        return [f"(time unknown: {of.detail})" if of.detail else "(time unknown)"]
    error = "" if of.error is None else f", standard error {output.duration(of.error)}"
    by = " and ".join(source.name.lower() for source in of.sources)
    memory = f", memory {format_memory(of.memory_mib)}" if of.memory_mib else ""
    return [f"({output.duration(of.time)}{error}, by {by}{memory})"]


def lines(job: Job) -> dict[str, str]:
    """Each configuration, of a job that has several; that of the current or last run is marked."""
    if not job.spec.alternatives:
        return {}
    return {
        f"configuration {number}": " ".join(
            [
                str(one),
                *_expected(job, number),
                *(["<- its run"] if job.run and number == job.configuration else []),
            ]
        )
        for number, one in enumerate(job.spec.configurations)
    }
