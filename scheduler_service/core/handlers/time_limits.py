"""The time limits of a site: the default for jobs that name none, and the longest that a job may have."""

from collections.abc import Mapping

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.model import JobClass
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Micros

CLASS_NAMES: Mapping[JobClass, str] = {JobClass.TRIAL: "trial", JobClass.BEST_EFFORT: "best-effort"}


def limit_of_new_job(settings: Settings, job_class: JobClass, asked_us: Micros) -> Micros:
    """The time limit of a job whose user asks for this one; 0: none. Raises FailedPrecondition if it is too long."""
    if asked_us:
        check_limit(settings, job_class, asked_us)
        return asked_us
    place = _place(job_class)
    return settings.default_time_limits_us[place] or settings.longest_time_limits_us[place]


def check_limit(settings: Settings, job_class: JobClass, limit_us: Micros) -> None:
    """Raises FailedPrecondition if a job of the class may not have this time limit; 0: none."""
    longest_us = settings.longest_time_limits_us[_place(job_class)]
    if longest_us and not 0 < limit_us <= longest_us:
        name, longest = CLASS_NAMES[job_class], f"{longest_us / SECOND:g} s"
        asked = f"a time limit of {limit_us / SECOND:g} s is too long" if limit_us else "a time limit is needed"
        raise FailedPrecondition(
            "TIME_LIMIT_TOO_LONG",
            f"{asked}: {name} jobs of this site may run for {longest} at most (longest_time_limit in the scheduler's "
            f"configuration); ask for {longest} or less, and have a longer job save its work and be submitted again",
            job_class=name,
            longest_s=f"{longest_us / SECOND:g}",
        )


def _place(job_class: JobClass) -> int:
    return 0 if job_class is JobClass.TRIAL else 1
