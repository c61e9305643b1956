"""The part of a device that a job asks for, from what people write."""

import math
from numbers import Real
from typing import Literal, NamedTuple

from client_sdk import units
from client_sdk._values.enums import ShareMode
from client_sdk.errors import InvalidArgument

WHOLE = 1_000_000
"""One device, in millionths."""
SHARES = {"exclusive": ShareMode.EXCLUSIVE, "packed": ShareMode.PACKED, "sliced": ShareMode.SLICED}


class Part(NamedTuple):
    """As the fields of `JobSpec` and `Resources` have it."""

    devices: int
    gpu_fraction_ppm: int = 0
    gpu_memory_mib: int = 0
    share: ShareMode = ShareMode.EXCLUSIVE


Sharing = ShareMode | Literal["exclusive", "packed", "sliced"] | None


def part(devices: float | None, gpu_memory: str | int, share: Sharing) -> Part:
    """`devices`: whole devices, or a fraction of one. Raises InvalidArgument for what no job can have."""
    mode = share_mode(share)
    memory = units.parse_memory(gpu_memory)
    whole, fraction = (1 if memory else 0, 0) if devices is None else _split(devices)
    if mode is ShareMode.EXCLUSIVE and (fraction or memory):
        named = "a fraction of a device" if fraction else "memory of a device (gpu_memory)"
        raise InvalidArgument(f"a job that asks for {named} shares the device; leave out exclusive, or ask for whole devices")
    if mode is None:
        mode = ShareMode.SLICED if fraction else ShareMode.PACKED if memory else ShareMode.EXCLUSIVE
    return Part(whole, fraction, memory, mode)


def share_mode(share: Sharing) -> ShareMode | None:
    """Raises InvalidArgument for an unknown word."""
    if isinstance(share, str) and share not in SHARES:
        raise InvalidArgument(f"share={share!r} is unknown; it is {', '.join(SHARES)}")
    return SHARES[share] if isinstance(share, str) else share


def _split(devices: float) -> tuple[int, int]:
    """Whole devices, and millionths of one."""
    if isinstance(devices, int) or not isinstance(devices, Real):
        return devices, 0  # type: ignore[return-value]  # what is no number is refused as it is sent
    if not math.isfinite(devices) or devices < 0:
        raise InvalidArgument(f"devices={devices!r} is no number of devices")
    if devices == int(devices):
        return int(devices), 0
    if devices > 1:
        raise InvalidArgument(
            f"devices={devices:g} is no number of devices; a job has whole devices, or a fraction of one, such as 0.5"
        )
    return 1, min(max(round(devices * WHOLE), 1), WHOLE - 1)
