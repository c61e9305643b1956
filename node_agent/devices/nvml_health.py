"""The health of GPUs according to NVML: read on request, and reported as events happen; see `nvml`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import c_void_p, cast
from typing import Any, NamedTuple

import pynvml  # type: ignore[import-untyped]

from node_agent.devices.nvml import Handle, or_none

_EVENTS = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeFatalPoisonError
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)
_EVENT_LIMIT_MS = 60_000
_EVENT_RETRY = 5.0


class Health(NamedTuple):
    """The state of a GPU as the driver reports it on request. None: it cannot say."""

    recovery: int | None
    """The action that the driver asks for; 0 is none."""
    remap_pending: bool | None
    remap_failed: bool | None
    uncorrectable: int | None
    """Number of memory errors since the last reset."""


def health(device: Handle) -> Health:
    """Read the health. Never raises: what cannot be read is None."""
    rows = or_none(lambda: pynvml.nvmlDeviceGetRemappedRows(device))
    errors = or_none(
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(device, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )
    return Health(
        recovery=or_none(lambda: _field(device, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)),
        remap_pending=None if rows is None else bool(rows[2]),
        remap_failed=None if rows is None else bool(rows[3]),
        uncorrectable=errors,
    )


def events(gpus: Sequence[Handle]) -> Iterator[tuple[int | None, int | None]]:
    """Yield (position in `gpus`, XID) of each error from now on, as it happens; endless, so call it in a thread of its own.

    Without a position, the GPU is not known. Without an XID, something else changed: `health` has more. Ends immediately if
    no GPU reports events.
    """
    events = pynvml.nvmlEventSetCreate()
    telling = 0
    for gpu in gpus:
        with suppress(pynvml.NVMLError):
            types = _EVENTS & pynvml.nvmlDeviceGetSupportedEventTypes(gpu)
            if types:
                pynvml.nvmlDeviceRegisterEvents(gpu, types, events)
                telling += 1
    places = {_address(gpu): place for place, gpu in enumerate(gpus)}
    return _wait(events, places) if telling else iter(())


def _wait(events: Any, places: Mapping[int | None, int]) -> Iterator[tuple[int | None, int | None]]:
    while True:
        try:
            event = pynvml.nvmlEventSetWait(events, _EVENT_LIMIT_MS)
        except pynvml.NVMLError_Timeout:
            continue
        except pynvml.NVMLError:  # most likely a GPU was lost; this then fails repeatedly
            yield None, None
            time.sleep(_EVENT_RETRY)
            continue
        xid = int(event.eventData) if event.eventType == pynvml.nvmlEventTypeXidCriticalError else None
        yield places.get(_address(event.device)), xid


def _field(device: Handle, field: int) -> int | None:
    (value,) = pynvml.nvmlDeviceGetFieldValues(device, [field])
    return int(value.value.uiVal) if value.nvmlReturn == pynvml.NVML_SUCCESS else None


def _address(device: Handle) -> int | None:
    return cast(device, c_void_p).value
