"""A user changes how a job that asks for a part of a device holds it: alone, packed or sliced.

A launch keeps what it holds. So the change counts from the next launch on, with one exception: a run that shares its device
with no other has it alone immediately.
"""

from scheduler_service.core.allocation.share_groups import have_alone
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.model import Job, ShareMode
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.state.state import State


def changed_by_user(state: State, job: Job, mode: ShareMode | None) -> tuple[Job, str]:
    """The job with this mode, and text for the story; empty: nothing changes. Raises FailedPrecondition."""
    wanted = job.spec.share if job.share_next is None else job.share_next
    if mode in (None, wanted):
        return job, ""
    assert mode is not None
    _check(job, mode)
    text = f"share {job.spec.share.name.lower()} -> {mode.name.lower()}"
    if mode is job.spec.share:
        return with_changes(job, share_next=None), f"share {wanted.name.lower()} -> {mode.name.lower()}"
    if job.id not in state.active:
        return with_changes(job, share_next=mode).with_share(), text
    if mode is ShareMode.EXCLUSIVE:
        alone = with_changes(job, share_next=mode).with_share()
        if have_alone(state, alone):
            return alone, f"{text}, from now on"
    return with_changes(job, share_next=mode), f"{text}, from its next launch on"


def _check(job: Job, mode: ShareMode) -> None:
    why = ""
    if not (job.spec.gpu_fraction_ppm or job.spec.gpu_memory_mib):
        why = "it asks for whole devices, and has them alone; submit it with a part of one (--gpus 0.5)"
    elif mode is ShareMode.SLICED and not job.spec.gpu_fraction_ppm:
        why = "it asks for memory of a device, and not for a part of the time; submit it with a fraction (--gpus 0.5)"
    elif job.elements is not None:
        why = "it is an array, whose elements are jobs; update those"
    if why:
        text = f"job {job.id} cannot be made {mode.name.lower()}: {why}"
        raise FailedPrecondition("CANNOT_SHARE", text, job_id=str(job.id), share=mode.name)
