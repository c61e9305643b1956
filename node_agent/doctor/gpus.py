"""GPUs: the driver, its device files, whether it stays loaded, and what it reports."""

import asyncio
import grp
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from node_agent.build_devices import capacity, laid_out
from node_agent.config import DeviceSettings
from node_agent.devices.gpus import read_gpus
from node_agent.devices.reading import Reading
from node_agent.doctor.findings import Finding, ok, problem, warning
from node_agent.errors import AgentError

PROC = Path("/proc/driver/nvidia")
DEV = Path("/dev")
_SEE = "see `dmesg | grep -i -e nvrm -e xid`; after an update of the driver, reboot"


def check_simulated(profile: str, proc: Path = PROC) -> Iterator[Finding]:
    yield ok(f"the devices are simulated ({profile}); nothing of a GPU is looked at")
    if (proc / "version").exists():
        yield warning(
            "this machine has an NVIDIA driver, and its GPUs are not used", "devices: nvml in the file, if they should be"
        )


Reader = Callable[[float], Awaitable[Reading]]


def check_real(
    limit: float, settings: DeviceSettings, proc: Path = PROC, dev: Path = DEV, reader: Reader = read_gpus
) -> Iterator[Finding]:
    """Check the GPUs. If the driver is not even loaded, nothing else can be checked."""
    found = list(driver(proc))
    yield from found
    if any(finding.level == "problem" for finding in found):
        return
    reading, of_reading = read_with_findings(reader, limit)
    yield from of_reading
    if reading.gpus:
        yield from check_offer(settings, reading)
    yield from device_files(tuple(gpu.minor for gpu in reading.gpus if gpu.minor is not None), dev)
    yield from persistence(limit)


def driver(proc: Path = PROC) -> Iterator[Finding]:
    try:
        said = (proc / "version").read_text().splitlines()[0]
    except FileNotFoundError:
        yield problem(
            f"NVIDIA's kernel driver is not loaded ({proc} is not there)",
            "install it (Debian: nvidia-driver; Ubuntu: ubuntu-drivers install --gpgpu), and reboot; or see `dmesg`",
        )
    else:
        yield ok(said.removeprefix("NVRM version:").strip())


def device_files(minors: tuple[int, ...], dev: Path = DEV) -> Iterator[Finding]:
    """Check the files that every CUDA program opens, and one for each GPU."""
    names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in minors)]
    if missing := [name for name in names if not (dev / name).exists()]:
        yield problem(
            f"{_list_files(dev, missing)} missing, and jobs may not make them (NoNewPrivileges)",
            "as root: nvidia-modprobe -c 0 -u; nvidia-persistenced, enabled, does it at each boot",
        )
    if refused := [name for name in names if (dev / name).exists() and not os.access(dev / name, os.R_OK | os.W_OK)]:
        about = (dev / refused[0]).stat()
        try:
            group = grp.getgrgid(about.st_gid).gr_name
        except KeyError:
            group = str(about.st_gid)
        yield problem(
            f"{_list_files(dev, refused)} not for this user: mode {about.st_mode & 0o777:04o}, group {group}",
            f"usermod -aG {group} ebb-agent, and restart the agent (or NVreg_DeviceFileMode=0666 for the module nvidia)",
        )
    if not missing and not refused:
        yield ok(f"{len(names)} device files of NVIDIA's, which this user may use")


def persistence(limit: float, program: str | None = None) -> Iterator[Finding]:
    """Ask nvidia-smi, in a process of its own: a sick driver hangs each process that asks it."""
    program = program or shutil.which("nvidia-smi")
    if program is None:
        yield warning(
            "there is no nvidia-smi, so whether the driver stays loaded was not looked at", "install the driver's tools"
        )
        return
    command = [program, "--query-gpu=index,persistence_mode", "--format=csv,noheader"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=limit, stdin=subprocess.DEVNULL
        ).stdout
    except subprocess.TimeoutExpired:
        yield problem(
            f"nvidia-smi does not answer within {limit:g} s", "the driver hangs: see `dmesg | grep -i -e nvrm -e xid`; reboot"
        )
        return
    except subprocess.CalledProcessError as error:
        yield problem(f"nvidia-smi fails: {(error.stdout + error.stderr).strip()}", "see `dmesg | grep -i nvrm`")
        return
    off = [line.split(",")[0].strip() for line in said.splitlines() if line.split(",")[1].strip() != "Enabled"]
    if off:
        yield warning(
            f"persistence mode is off for GPU {', '.join(off)}: unused, the driver is unloaded, and the next start waits",
            "systemctl enable --now nvidia-persistenced",
        )
    else:
        yield ok("persistence mode is on")


def read_with_findings(reader: Reader, limit: float) -> tuple[Reading, list[Finding]]:
    """Read the GPUs as the agent would."""
    try:
        reading = asyncio.run(_await_reading(reader, limit))
    except AgentError as error:
        return Reading(), [problem(" ".join(str(error).split()), _SEE)]
    found = [problem(said, _SEE) for said in reading.problems]
    for gpu in reading.gpus:
        if gpu.fault:
            found.append(
                problem(f"GPU {gpu.pci} ({gpu.uuid}): {gpu.fault}", "reset it (nvidia-smi --gpu-reset) or have it replaced")
            )
    if not reading.gpus:
        found.append(problem("NVML shows no GPU", "see `nvidia-smi` and `lspci -d 10de:`; in a container, pass them in"))
    elif not found:
        models = sorted({gpu.name for gpu in reading.gpus})
        found.append(ok(f"{len(reading.gpus)} x {', '.join(models)}; driver {reading.driver}, NVML {reading.nvml}"))
    return reading, found


def check_offer(settings: DeviceSettings, reading: Reading) -> Iterator[Finding]:
    """Check only what keeps an agent from offering these GPUs; `ebb-agent devices` reports oddities of their tree."""
    try:
        capacity(settings)
        asyncio.run(laid_out(reading, settings.device_tree))
    except AgentError as error:
        yield problem(" ".join(str(error).split()), "`ebb-agent devices` with the same settings says whether it fits now")


async def _await_reading(reader: Reader, limit: float) -> Reading:
    return await reader(limit)


def _list_files(dev: Path, names: list[str]) -> str:
    return f"{', '.join(str(dev / name) for name in names)} {'is' if len(names) == 1 else 'are'}"
