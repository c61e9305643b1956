"""How the configurations of a job are shown."""

from client_sdk.models import Configuration, Job


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


def lines(job: Job) -> dict[str, str]:
    """Each configuration, of a job that has several; that of the current or last run is marked."""
    if not job.spec.alternatives:
        return {}
    return {
        f"configuration {number}": " ".join(
            [
                str(one),
                *([f"({one.estimate} estimated)"] if one.estimate is not None else []),
                *(["<- its run"] if job.run and number == job.configuration else []),
            ]
        )
        for number, one in enumerate(job.spec.configurations)
    }
