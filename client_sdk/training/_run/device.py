"""On which device a job runs."""

import os
from pathlib import Path
from typing import Literal, NamedTuple

_DRIVER = "/dev/nvidiactl"


class Device(NamedTuple):
    """The device of a run: for PyTorch, `torch.device(training.device().type)`."""

    type: Literal["cuda", "cpu"]
    devices: int
    """The number of devices; 0 for the CPU."""
    model: str
    """The model, such as "NVIDIA A100-SXM4-80GB"; empty for the CPU, and outside of Ebb."""
    memory_mib: int
    """The memory of the device with the least; 0 for the CPU, and outside of Ebb."""
    configuration: int
    """The number of the job's configuration that was chosen for this run; 0 for a job that has only one."""


def device() -> Device:
    """The device of this run. Outside of Ebb: "cuda" if this machine has NVIDIA's driver and CUDA_VISIBLE_DEVICES hides
    nothing, with one device."""
    held = os.environ.get("EBB_DEVICES")
    if held is None:
        found = Path(_DRIVER).exists() and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1")
        return Device("cuda", 1, "", 0, 0) if found else Device("cpu", 0, "", 0, 0)
    configuration = int(os.environ.get("EBB_CONFIGURATION", "0"))
    if not held:
        return Device("cpu", 0, "", 0, configuration)
    model, memory = os.environ.get("EBB_DEVICE_MODEL", ""), os.environ.get("EBB_DEVICE_MEMORY_MIB", "0")
    return Device("cuda", len(held.split(",")), model, int(memory), configuration)
