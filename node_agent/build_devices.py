"""Builds the devices from the settings: reads the GPUs, makes the tree, and applies the corrections of an operator."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from node_agent.config import NVML, DeviceSettings
from node_agent.devices import override as overrides
from node_agent.devices.base import Inventory, Provider
from node_agent.devices.gpus import Gpus, fault_text, one_line, read_gpus
from node_agent.devices.reading import Reading
from node_agent.devices.simulated import simulate_devices
from node_agent.devices.tree import Tree
from node_agent.errors import AgentError, DeviceTreeUnusable, DriverFailed, NothingLeft

log = logging.getLogger(__name__)

TREE_LIMIT = 60.0
GONE = (
    "the driver no longer lists it (if it was taken away for good, stop the agent, remove gpus.json from its state"
    " directory, and start it again)"
)
CHANGED = (
    "the driver now says other things of the GPUs, or of where they stand. There are runs here, so the node stays as it was"
    " when they were started: start the agent again when they have ended"
)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Opened:
    provider: Provider
    notes: tuple[str, ...] = ()
    """Messages for an operator: problems of the driver, and what the tree had to leave out or guess."""
    reading: Reading | None = None
    """None: the devices are simulated."""


async def open_devices(settings: DeviceSettings, state: Path | None = None, held: bool = False) -> Opened:
    """Return the devices of this node; raises `AgentError`. With a state directory, GPUs that were seen since the machine
    booted and are no longer reported keep their places, as faulty ones. `held`: runs may hold devices, so nothing else changes.
    """
    if settings.devices != NVML:
        return Opened(simulate_devices(settings.devices, settings.node, cpu_sets=settings.cpus))
    cpu_milli, memory_mib = capacity(settings)
    reading = await (read_gpus() if state is None else _since_boot(state / "gpus.json", held))
    inventory, notes = await laid_out(reading, settings.device_tree, cpu_milli, memory_mib)
    return Opened(Gpus(inventory, reading, memory_rate=settings.memory_rate), notes, reading)


async def laid_out(
    reading: Reading, device_tree: Path | None, cpu_milli: int = 0, memory_mib: int = 0
) -> tuple[Inventory, tuple[str, ...]]:
    """Return the inventory for a reading, and messages about it; raises `AgentError`."""
    override = None if device_tree is None else _override(device_tree)
    try:
        if override is not None:
            reading = overrides.leave_out(reading, override)
        return overrides.inventory(reading, await _tree(reading), override, cpu_milli, memory_mib)
    except overrides.Unfit as error:
        raise DeviceTreeUnusable(file=device_tree, problems=error) from error


def _override(file: Path) -> overrides.Override:
    try:
        return overrides.parse(file.read_text())
    except OSError as error:
        raise DeviceTreeUnusable(file=file, problems=f"  {error.strerror}") from error
    except (overrides.Unfit, UnicodeDecodeError) as error:
        raise DeviceTreeUnusable(file=file, problems=error) from error


def capacity(settings: DeviceSettings) -> tuple[int, int]:
    """Return the host's milli-CPUs and MiB, less what is reserved for the system."""
    cpus, total = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    cpu_milli, memory_mib = round((cpus - settings.reserve_cpus) * 1000), int((total >> 20) - settings.reserve_memory * 1024)
    if cpu_milli <= 0 or memory_mib <= 0:
        raise NothingLeft(cpus=cpus, memory=round(total / 2**30, 1))
    return cpu_milli, memory_mib


async def _tree(reading: Reading) -> Tree:
    """Make the tree in a process of its own: networkx would stay in this process, which lives long and should be small."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "node_agent.devices.graph"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is the agent's (and uvloop knows no process_group)
    )
    try:
        async with asyncio.timeout(TREE_LIMIT):
            said, _ = await process.communicate(reading.model_dump_json().encode())
    except TimeoutError as error:
        raise DriverFailed(why=f"the tree of the devices was not made within {TREE_LIMIT:g} s") from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise DriverFailed(why=f"the process that makes the tree of the devices ended with status {process.returncode}")
    return TypeAdapter(Tree).validate_json(said)


async def _since_boot(file: Path, held: bool) -> Reading:
    try:
        return add_remembered_gpus(await read_gpus(), file, held)
    except AgentError as error:
        # If the agent did not start, its runs' ends would go unreported; and a driver may hang until the machine is rebooted.
        if (before := _last_reading(file)) is None:
            raise
        log.error("%s The node starts with the GPUs that it had, all of them faulty", one_line(error))
        return _set_faults(before, {gpu.uuid: fault_text(error) for gpu in before.gpus})


def add_remembered_gpus(reading: Reading, file: Path, held: bool = False) -> Reading:
    """Return the reading plus the GPUs that an earlier reading of the same boot had and this one lacks or can no longer read;
    if runs hold devices, the earlier reading with the faults of this one.

    Runs hold devices by index, so indices must not change when a GPU falls off its bus. And the scheduler refuses a node
    that has changed in any way under its runs, and would never hear how they ended.
    """
    if (before := _last_reading(file)) is not None:
        reading = update_faults(reading, before) if held else add_lost_gpus(reading, before)
    new = file.with_suffix(".new")
    try:
        new.write_text(json.dumps({"boot": _boot(), "reading": reading.model_dump(mode="json")}))
        new.replace(file)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s): should a GPU be lost, the node counts anew at the agent's next start", file, error
        )
    return reading


def _last_reading(file: Path) -> Reading | None:
    """Return the reading remembered since the machine booted, or None."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        last = json.loads(file.read_text())
        if last["boot"] == _boot():
            return Reading.model_validate(last["reading"])
    return None


def _boot() -> str:
    return _BOOT_ID.read_text().strip()


def update_faults(reading: Reading, before: Reading) -> Reading:
    """Return the earlier reading with only the faults updated. A GPU whose memory was unknown then stays faulty."""
    now = add_lost_gpus(reading, before)
    faults = {gpu.uuid: gpu.fault for gpu in now.gpus}
    faults |= {gpu.uuid: faults[gpu.uuid] or gpu.fault for gpu in before.gpus if not gpu.memory_mib}
    problems = reading.problems if _facts(now) == _facts(before) else (*reading.problems, CHANGED)
    return _set_faults(before, faults).model_copy(update={"problems": problems})


def _facts(reading: Reading) -> tuple[object, object]:
    """Return the facts that must not change under runs, regardless of order."""
    gpus = {gpu.uuid: gpu.model_copy(update={"fault": ""}) for gpu in reading.gpus}
    return gpus, {frozenset((pair.a, pair.b)): (pair.level, pair.links) for pair in reading.pairs}


def _set_faults(reading: Reading, faults: Mapping[str, str]) -> Reading:
    gpus = tuple(gpu.model_copy(update={"fault": faults[gpu.uuid]}) for gpu in reading.gpus)
    return reading.model_copy(update={"gpus": gpus})


def add_lost_gpus(reading: Reading, before: Reading) -> Reading:
    """Keep each GPU that is gone, or is faulty and may report little, as it was before, with its fault."""
    now = {gpu.uuid: gpu for gpu in reading.gpus}
    lost = {
        gpu.uuid: gpu.model_copy(update={"fault": now[gpu.uuid].fault if gpu.uuid in now else GONE})
        for gpu in before.gpus
        if gpu.uuid not in now or now[gpu.uuid].fault
    }
    if not lost:
        return reading
    gpus = tuple(gpu for gpu in reading.gpus if gpu.uuid not in lost) + tuple(lost.values())
    pairs = {frozenset((pair.a, pair.b)): pair for pair in reading.pairs}
    pairs |= {frozenset((pair.a, pair.b)): pair for pair in before.pairs if {pair.a, pair.b} & lost.keys()}
    return reading.model_copy(update={"gpus": gpus, "pairs": tuple(pairs.values())})
