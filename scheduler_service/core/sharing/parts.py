"""Parts of devices: what a job that asks for one uses of a device, and the row of a share group in which it runs.

A sliced job asks for a part of the time of a device. It has the whole device in its turn, but for what parked jobs leave there.
A packed job asks for a part of the memory of a device.
"""

from collections.abc import Sequence

from scheduler_service.core.model import JobSpec, RunKey, ShareMode
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import WHOLE
from scheduler_service.core.sharing.changes import with_packed, with_sliced

SLICES = 4
"""This many sliced jobs find room on a device, whatever memory they use in their turn; more if their parts are small."""


def memory_of(spec: JobSpec, limit_mib: int, settings: Settings) -> int:
    """The most memory that a job uses of a device of which runs may use `limit_mib` together; 0: as much as they may.

    A sliced job that names no memory leaves room for the residue of other jobs, but takes half of the limit at least. A packed
    one has the part of the memory that it asks for of the device.
    """
    if spec.gpu_memory_mib or not limit_mib:
        return spec.gpu_memory_mib
    if spec.share is ShareMode.PACKED:
        return max(limit_mib * spec.gpu_fraction_ppm // WHOLE, 1)
    others = max(SLICES, WHOLE // spec.gpu_fraction_ppm) - 1
    return max(limit_mib - others * settings.parked_residue_mib, limit_mib // 2)


def part_of(spec: JobSpec, limit_mib: int) -> int:
    """The part of such a device that the job asks for, in millionths: that of its memory, if it names only memory.

    >>> from scheduler_service.core.model.values import Vector
    >>> part_of(JobSpec((), Vector(devices=1), gpu_memory_mib=20, share=ShareMode.PACKED), 80)
    250000
    """
    if spec.gpu_fraction_ppm or not limit_mib:
        return spec.gpu_fraction_ppm
    return min(max(spec.gpu_memory_mib * WHOLE // limit_mib, 1), WHOLE)


def first_row(spec: JobSpec, key: RunKey) -> Row:
    """The row of the first member of a share group. Rows of sliced runs have their parts as weights."""
    return Row((key,), spec.gpu_fraction_ppm if spec.share is ShareMode.SLICED else 1)


def with_one_more(rows: Sequence[Row], spec: JobSpec, key: RunKey) -> tuple[Row, ...]:
    """The rows of a share group of jobs that share in the same way, with one more of them."""
    if spec.share is ShareMode.SLICED:
        return with_sliced(rows, (key,), spec.gpu_fraction_ppm)
    return with_packed(rows, 0, (key,))
