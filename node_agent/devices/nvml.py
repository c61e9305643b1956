"""NVML, the driver's own library, through pynvml: one function per question, with plain values.

Only this and `nvml_health` import pynvml, and only child processes import them: any call may hang forever in a sick driver.
Everything raises `Failed` if the driver refuses, which is common: old drivers lack functions, and most cards lack features.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes import CDLL, byref, c_ulonglong
from typing import Any, NamedTuple, TypeVar

import pynvml  # type: ignore[import-untyped]

T = TypeVar("T")

Handle = Any
"""A GPU or a MIG instance, as the library identifies it. Handles do not outlive the process."""

Failed: type[Exception] = pynvml.NVMLError

_LIBRARY = "libnvidia-ml.so.1"
_MIB = 1 << 20
_CPU_WORDS = 64
"""Words of 64 CPUs each: more than any machine has."""

_ADVICE: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "Install the NVIDIA driver; a container must be started with the GPUs of its host",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "Load the kernel module (modprobe nvidia); dmesg says why it does not load",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "The driver was exchanged while its module was loaded: reboot, or reload it",
    pynvml.NVML_ERROR_NO_PERMISSION: "The user of the agent must be able to open /dev/nvidiactl and /dev/nvidia0",
}

_UNUSABLE: Mapping[int, str] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost: it no longer answers on its bus",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU must be reset before it can be used again",
    pynvml.NVML_ERROR_IRQ_ISSUE: "the kernel cannot serve the interrupts of the GPU",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "the GPU lacks power: look at its cables",
    pynvml.NVML_ERROR_UNKNOWN: "the driver fails at the GPU for a reason that it does not know",
}
"""Answers to the simplest questions that mean that nothing runs on this GPU."""

_LACKING = (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported, pynvml.NVMLError_ArgumentVersionMismatch)


class Unusable(Exception):
    """NVML as a whole cannot be used: `why`, and `advice` for the operator of this machine."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(why)
        self.why = why
        self.advice = advice


class Link(NamedTuple):
    """An NVLink that is up. `end` is where it leads: "gpu", "switch", or "" if that is not known."""

    end: str
    pci: str


class Gauge:
    """Reads the memory in use of one device many times a second, with as much as possible prepared beforehand.

    The library is the one that pynvml has opened, whose own functions make structs and look names up at each call: that
    takes eight times as long as this.
    """

    def __init__(self, device: Handle) -> None:
        self._device = device
        library = CDLL(_LIBRARY)
        try:
            # The newer one does not count what the driver reserves for itself: an idle GPU has none in use.
            self._call, self._answer = library.nvmlDeviceGetMemoryInfo_v2, pynvml.c_nvmlMemory_v2_t()
            self._answer.version = pynvml.nvmlMemory_v2
        except AttributeError:
            self._call, self._answer = library.nvmlDeviceGetMemoryInfo, pynvml.c_nvmlMemory_t()
        self._reference = byref(self._answer)
        self._used = c_ulonglong.from_buffer(self._answer, type(self._answer).used.offset)

    def used_mib(self) -> int:
        if code := self._call(self._device, self._reference):
            raise pynvml.NVMLError(code)
        return self._used.value // _MIB


class Power:
    """The power that a device draws now and the energy that it has used, read as cheaply as its memory (`Gauge`)."""

    def __init__(self, device: Handle) -> None:
        self._device = device
        self._field = pynvml.c_nvmlFieldValue_t(fieldId=pynvml.NVML_FI_DEV_POWER_INSTANT)
        self._reference = byref(self._field)
        library = CDLL(_LIBRARY)
        try:
            self._call, self._call_for_energy = library.nvmlDeviceGetFieldValues, library.nvmlDeviceGetTotalEnergyConsumption
        except AttributeError as error:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from error
        self._millijoules = c_ulonglong()
        self._energy_reference = byref(self._millijoules)

    def watts(self) -> int:
        # Not nvmlDeviceGetPowerUsage: from Ampere on, its answer is the mean of a second.
        if code := self._call(self._device, 1, self._reference) or self._field.nvmlReturn:
            raise pynvml.NVMLError(code)
        return int(self._field.value.uiVal // 1000)

    def joules(self) -> float:
        """Return the energy used since the driver was loaded."""
        if code := self._call_for_energy(self._device, self._energy_reference):
            raise pynvml.NVMLError(code)
        return float(self._millijoules.value / 1000)


@contextmanager
def open_library() -> Iterator[None]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unusable(str(error), _ADVICE.get(error.value, "nvidia-smi on this machine may say more")) from error
    try:
        yield
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def is_unsupported(error: Exception) -> bool:
    """Whether the card lacks the feature, or the driver does not know it: nothing is wrong."""
    return isinstance(error, _LACKING)


def too_old(error: Exception) -> bool:
    return isinstance(error, pynvml.NVMLError_FunctionNotFound)


def fault(error: Exception) -> str:
    """Return the fault of the GPU that this answer means; empty if it means none."""
    return _UNUSABLE.get(getattr(error, "value", 0), "")


def driver() -> str:
    return str(pynvml.nvmlSystemGetDriverVersion())


def version() -> str:
    return str(pynvml.nvmlSystemGetNVMLVersion())


def count() -> int:
    return int(pynvml.nvmlDeviceGetCount())


def handle(index: int) -> Handle:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def uuid(device: Handle) -> str:
    return str(pynvml.nvmlDeviceGetUUID(device))


def name(device: Handle) -> str:
    return str(pynvml.nvmlDeviceGetName(device))


def pci(device: Handle) -> str:
    return _sysfs(pynvml.nvmlDeviceGetPciInfo(device).busId)


def minor(device: Handle) -> int:
    return int(pynvml.nvmlDeviceGetMinorNumber(device))


def total_mib(device: Handle) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(device).total // _MIB)


def utilisation(device: Handle) -> int:
    return min(int(pynvml.nvmlDeviceGetUtilizationRates(device).gpu), 100)  # the scheduler would refuse more


def processes(device: Handle) -> dict[int, int | None]:
    """Return the MiB of each computing process, by pid. None: the driver does not say how much."""
    try:
        told = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device)
    except pynvml.NVMLError_FunctionNotFound:
        told = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(device)
    return {one.pid: None if one.usedGpuMemory is None else one.usedGpuMemory // _MIB for one in told}


def cpus(device: Handle) -> tuple[int, ...]:
    """Return the CPUs of the NUMA node that is nearest."""
    words = pynvml.nvmlDeviceGetCpuAffinityWithinScope(device, _CPU_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def common_ancestor(a: Handle, b: Handle) -> int:
    """Return a constant of NVML: 0, 10, ..., 50 from the nearest level to the farthest."""
    return int(pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b))


def links(device: Handle) -> list[Link]:
    found = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            up = pynvml.nvmlDeviceGetNvLinkState(device, link)
        except (pynvml.NVMLError_InvalidArgument, *_LACKING):  # the device has no more links
            break
        if up:
            found.append(Link(_end(device, link), _sysfs(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(device, link).busId)))
    return found


def fabric(device: Handle) -> str:
    """Return <cluster uuid>/<clique> of a full member of an NVSwitch fabric; within one machine, the uuid is all zeros."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
    if info.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != pynvml.NVML_SUCCESS:
        return ""
    digits = bytes(info.clusterUuid).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])) + f"/{info.cliqueId}"


def instances(device: Handle) -> list[Handle] | None:
    """Return the MIG instances; None if the GPU is not in MIG mode."""
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(device)
    except _LACKING:
        return None
    if not current:
        return None
    found = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        with suppress(pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):  # an empty place
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place))
    return found


def or_none(call: Callable[[], T]) -> T | None:
    """Return the driver's answer; None if it refuses."""
    try:
        return call()
    except pynvml.NVMLError:
        return None


def _end(device: Handle, link: int) -> str:
    ends = {pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu", pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch"}
    return ends.get(or_none(lambda: pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(device, link)), "")


def _sysfs(bus: str) -> str:
    """Return 0000:07:00.0 for NVML's 00000000:07:00.0."""
    domain, _, rest = bus.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"
