"""What NVML says of the health of GPUs: when it is asked, and by itself as something happens; see `nvml`."""

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
    """What the driver says of a GPU when it is asked. None: it cannot say."""

    recovery: int | None
    """The action that it asks for; 0 is none."""
    remap_pending: bool | None
    remap_failed: bool | None
    uncorrectable: int | None
    """Memory errors since the last reset."""


def health(device: Handle) -> Health:
    """Never raises: what cannot be read is None."""
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
    """(place in `gpus`, XID) of each thing that goes wrong from now on, as it does; forever, so in a thread of its own.

    Without a place it is not known where. Without an XID something else changed: `health` has more. Ends at once where no
    GPU tells of events.
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
        except pynvml.NVMLError:  # most likely a GPU was lost; this fails again and again then
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
