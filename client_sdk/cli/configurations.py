"""How the configurations of a job are shown."""

from client_sdk.cli.output import common as output
from client_sdk.models import Configuration, Job
from client_sdk.units import format_memory


def launched_configuration(job: Job) -> Configuration:
    """Return the configuration of its current or last run; before the first run, the spec's own."""
    found = job.spec.configurations
    return found[job.configuration] if job.configuration < len(found) else found[0]


def brief_text(job: Job) -> str:
    """Return, for example, "1: 2 V100 and 4 CPUs"; - for a job that has only one configuration, or that has not run."""
    return chosen_text(job) if job.spec.alternatives and job.run else "-"


def chosen_text(job: Job) -> str:
    """Such as "1: 2 V100 and 4 CPUs"."""
    return f"{job.configuration}: {launched_configuration(job)}"


def estimate_text(job: Job, number: int) -> str:
    """Return, for example, "118 s, standard error 13 s, by sample"; empty if nothing but the user's estimate is known."""
    of = next((one for one in job.estimates if one.configuration == number), None)
    if of is None:
        return ""
    if of.time is None:
        return ("impossible: " if of.impossible else "time unknown: ") + of.detail
    error = "" if of.error is None else f", standard error {output.duration(of.error)}"
    by = " and ".join(source.name.lower() for source in of.sources)
    memory = f", memory {format_memory(of.memory_mib)}" if of.memory_mib else ""
    return f"{output.duration(of.time)}{error}, by {by}{memory}"


def _time(job: Job, number: int, one: Configuration) -> list[str]:
    if known := estimate_text(job, number):
        return [f"({known})"]
    return [f"({one.estimate} estimated)"] if one.estimate is not None else []


def lines(job: Job) -> dict[str, str]:
    """Each configuration, of a job that has several; that of the current or last run is marked."""
    if not job.spec.alternatives:
        return {}
    return {
        f"configuration {number}": " ".join(
            [
                str(one),
                *_time(job, number, one),
                *(["<- its run" + (", a sample" if job.sampling else "")] if job.run and number == job.configuration else []),
            ]
        )
        for number, one in enumerate(job.spec.configurations)
    }
