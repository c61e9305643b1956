"""Jobs that ask for parts of devices, for tests."""

from typing import Any

from scheduler_service.core.messages import Accepted, Submitted
from scheduler_service.core.model import JobSpec, JobState, ShareMode
from scheduler_service.core.model.rows import with_changes
from tests.core.driver import Driver, spec

PACKED, SLICED = ShareMode.PACKED, ShareMode.SLICED


def part(fraction: float = 0, memory: int = 0, share: ShareMode | None = None, trial: bool = False, **more: Any) -> JobSpec:
    """A job that asks for this fraction of a device, or for so many MiB of one."""
    mode = share or (SLICED if fraction else PACKED)
    ppm = round(fraction * 1_000_000)
    return with_changes(spec(1, trial), gpu_fraction_ppm=ppm, gpu_memory_mib=memory, share=mode, **more)


def ask(driver: Driver, what: JobSpec, user: str = "ann") -> int:
    """Submits the job, which runs if it was placed; returns its id."""
    answer = driver.reply(Submitted(user, "", what))
    assert isinstance(answer, Accepted), answer
    if driver.job(answer.job_id).state is JobState.STARTING:
        driver.start(answer.job_id)
    return answer.job_id


def places(driver: Driver, *jobs: int) -> list[tuple[str, int]]:
    """The node and the device of each of these jobs, which run."""
    return [(driver.where(job).name, driver.run(job).devices[0]) for job in jobs]
