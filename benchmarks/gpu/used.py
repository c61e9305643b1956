"""How much memory the device has in use, as NVML says, for all processes."""

from __future__ import annotations

import subprocess
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def reader(device: str, uuid: str, pid: int) -> tuple[str, Callable[[], int]]:
    """Who says so, and a function for the bytes in use. For "cpu" they are those of the process outside of shared memory."""
    if device == "cpu":
        return "the kernel", lambda: _anonymous(pid)
    if find_spec("pynvml") is not None:
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return "NVML", lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    return "nvidia-smi", lambda: _nvidia_smi(uuid)


def _anonymous(pid: int) -> int:
    with open(f"/proc/{pid}/status") as lines:  # noqa: PTH123
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def _nvidia_smi(uuid: str) -> int:
    command = ["nvidia-smi", f"--id={uuid}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout) << 20


def seconds_until(used: Callable[[], int], most: int, limit: float = 10.0) -> float:
    """Seconds until no more than this is in use; infinite if that takes longer than the limit."""
    began = time.monotonic()
    while used() > most:
        if time.monotonic() > began + limit:
            return float("inf")
        time.sleep(0.002)
    return time.monotonic() - began
