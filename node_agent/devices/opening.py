"""From the settings to the devices: reads the GPUs, makes the tree, and applies what a person says of it."""

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from node_agent.config import NVML, DeviceSettings
from node_agent.devices import override as overrides
from node_agent.devices.base import Inventory, Provider
from node_agent.devices.gpus import Gpus, read_gpus
from node_agent.devices.reading import Reading
from node_agent.devices.simulated import simulated
from node_agent.devices.tree import Tree
from node_agent.errors import DeviceTreeUnusable, DriverFailed, NothingLeft

log = logging.getLogger(__name__)

TREE_LIMIT = 60.0
GONE = (
    "the driver no longer lists it (if it was taken away for good, stop the agent, remove gpus.json from its state"
    " directory, and start it again)"
)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Opened:
    provider: Provider
    notes: tuple[str, ...] = ()
    """What an operator should know: problems of the driver, and what the tree had to leave out or guess."""
    reading: Reading | None = None
    """None: the devices are simulated."""


async def opened(settings: DeviceSettings, state: Path | None = None) -> Opened:
    """The devices of this node; raises `AgentError`. With a state directory, GPUs that were here since the machine started
    and are not told of any more keep their places, as faulty ones."""
    if settings.devices != NVML:
        return Opened(simulated(settings.devices, settings.node))
    cpu_milli, memory_mib = capacity(settings)
    reading = await read_gpus()
    if state is not None:
        reading = remembered(reading, state / "gpus.json")
    inventory, notes = await laid_out(reading, settings.device_tree, cpu_milli, memory_mib)
    return Opened(Gpus(inventory, reading, memory_rate=settings.memory_rate), notes, reading)


async def laid_out(
    reading: Reading, device_tree: Path | None, cpu_milli: int = 0, memory_mib: int = 0
) -> tuple[Inventory, tuple[str, ...]]:
    """The inventory that a reading comes to, and what is to be said about it; raises `AgentError`."""
    override = None if device_tree is None else _override(device_tree)
    try:
        if override is not None:
            reading = overrides.without(reading, override)
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
    """The host's milli-CPUs and MiB, less what is kept for the system."""
    cpus, total = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    cpu_milli, memory_mib = round((cpus - settings.reserve_cpus) * 1000), int((total >> 20) - settings.reserve_memory * 1024)
    if cpu_milli <= 0 or memory_mib <= 0:
        raise NothingLeft(cpus=cpus, memory=round(total / 2**30, 1))
    return cpu_milli, memory_mib


async def _tree(reading: Reading) -> Tree:
    """Made by a process of its own: networkx would stay in this one, which lives long and is to be small."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "node_agent.devices.graph"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
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


def remembered(reading: Reading, file: Path) -> Reading:
    """The reading, with the GPUs that an earlier one of the same boot had and this one lacks, or cannot read any more.

    A GPU that falls off its bus must not change the others' indices, while runs hold them by these.
    """
    boot = _BOOT_ID.read_text().strip()
    with suppress(OSError, ValueError, KeyError, TypeError):
        last = json.loads(file.read_text())
        if last["boot"] == boot:
            reading = with_lost(reading, Reading.model_validate(last["reading"]))
    new = file.with_suffix(".new")
    try:
        new.write_text(json.dumps({"boot": boot, "reading": reading.model_dump(mode="json")}))
        new.replace(file)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s): should a GPU be lost, the node counts anew at the agent's next start", file, error
        )
    return reading


def with_lost(reading: Reading, before: Reading) -> Reading:
    """A GPU that is gone, or is faulty and may not say much any more, as it was before, with its fault."""
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
