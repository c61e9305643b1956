"""The GPUs of this node, as NVML's child process reports them."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from node_agent.devices.base import (
    FAULT_LENGTH,
    ActivityPeriod,
    ActivitySource,
    Device,
    DeviceCycle,
    Inventory,
    Observation,
    Observed,
    ProcessMemory,
)
from node_agent.devices.reading import Reading
from node_agent.errors import AgentError, DriverFailed, DriverSilent, NoDriver, UnknownDevice

log = logging.getLogger(__name__)

START_LIMIT = 60.0
"""Without its persistence daemon, the driver wakes each GPU at the first question: seconds each."""
MEMORY_RATE = 10.0
"""Samples per second of the memory of a device with a single process. A wave shows from four samples a period on."""

_UNUSABLE = "unusable"
_LONGEST_PAUSE = 60.0
_MOST_OF_A_LINE = 1 << 22


async def read_gpus(limit_seconds: float = START_LIMIT, sysfs: Path | None = None) -> Reading:
    """Read the GPUs of the machine. Raises `NoDriver`, `DriverSilent` or `DriverFailed`."""
    async with _child("read", *(() if sysfs is None else ("--sysfs", str(sysfs)))) as child:
        line = await child.line(limit_seconds)
        try:
            return Reading.model_validate(line)
        except ValueError as error:
            raise DriverFailed(why=error) from error


def one_line(error: AgentError) -> str:
    """Return the error on one line, for logs and tables."""
    return " ".join(str(error).split())


def fault_text(error: AgentError) -> str:
    """Return an error of the driver as the fault of each of its GPUs."""
    return "the driver does not answer" if isinstance(error, DriverSilent) else one_line(error)


class Gpus:
    """A `Provider` of GPUs. The UUID of a device may also be that of a MIG instance."""

    def __init__(
        self,
        inventory: Inventory,
        reading: Reading,
        *,
        memory_rate: float = MEMORY_RATE,
        limit_seconds: float = 10.0,
        start_limit_seconds: float = START_LIMIT,
    ) -> None:
        self.inventory = inventory
        self._cpus = {uuid: gpu.cpus for gpu in reading.gpus for uuid in (gpu.uuid, *(one.uuid for one in gpu.mig or ()))}
        self._memory_rate = memory_rate
        self._limit = limit_seconds
        self._start_limit = start_limit_seconds
        self._xids: Mapping[str, int] = {}

    def cpus(self, indices: Sequence[int]) -> frozenset[int] | None:
        nearest = [self._cpus.get(uuid, ()) for uuid in self._uuids(indices)]
        if not all(nearest):
            return None
        # A container may have fewer CPUs than its host.
        return frozenset().union(*nearest) & os.sched_getaffinity(0) or None

    def environment(self, indices: Sequence[int]) -> Mapping[str, str]:
        # NVML's order is not CUDA's, so devices are named by UUID. A container made by the run sees the same ones.
        uuids = ",".join(self._uuids(indices))
        return {"CUDA_VISIBLE_DEVICES": uuids, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NVIDIA_VISIBLE_DEVICES": uuids}

    async def observe(self) -> AsyncGenerator[Observed, None]:
        pause = 1.0
        while True:
            child = None
            try:
                arguments = ("--memory-rate", str(self._memory_rate), "--xids", json.dumps(self._xids))
                async with _child("watch", *arguments) as child:
                    limit = self._start_limit
                    while True:
                        observed = self._parse_line(await child.line(limit))
                        limit, pause = self._limit, 1.0
                        yield observed
            except AgentError as error:
                log.error("the GPUs cannot be watched: %s Trying again in %g s", one_line(error), pause)
                yield self._all_faulty(fault_text(error))
            await asyncio.sleep(pause)
            # A child that hangs in the kernel remains until the kernel releases it. Do not start a second one.
            while child is not None and child.process.poll() is None:
                await asyncio.sleep(1.0)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _parse_line(self, line: Any) -> Observed:
        try:
            # For the next child: an XID is reported once.
            self._xids = line["xids"]
            return self._build_observed(line)
        except (KeyError, TypeError, ValueError) as error:  # another version than ours was installed meanwhile
            raise DriverFailed(why=f"this is not understood: {line}") from error

    def _build_observed(self, line: Mapping[str, Any]) -> Observed:
        indices = {device.uuid: device.index for device in self.inventory.devices}
        return Observed(
            devices=tuple(
                _observation(device, *line["devices"].get(device.uuid, (None, None, "the driver no longer shows it")))
                for device in self.inventory.devices
            ),
            processes=tuple(
                ProcessMemory(pid, indices[uuid], used) for pid, uuid, used in line["processes"] if uuid in indices
            ),
            cycles=tuple(DeviceCycle(pid, indices[uuid], *rest) for pid, uuid, *rest in line["cycles"] if uuid in indices),
            activity=tuple(
                ActivityPeriod(pid, indices[uuid], period, confidence, ActivitySource(source))
                for pid, uuid, period, confidence, source in line["activity"]
                if uuid in indices
            ),
            began=line["began"],
        )

    def _all_faulty(self, fault: str) -> Observed:
        return Observed(tuple(_observation(device, None, None, fault) for device in self.inventory.devices))

    def _uuids(self, indices: Sequence[int]) -> list[str]:
        uuids = {device.index: device.uuid for device in self.inventory.devices}
        for index in indices:
            if index not in uuids:
                raise UnknownDevice(index=index, known=", ".join(map(str, uuids)) or "none")
        return [uuids[index] for index in indices]


def _observation(device: Device, used: int | None, utilisation: int | None, fault: str) -> Observation:
    # A device's memory size is read when the agent starts. If that failed, the device stays faulty until the size is known.
    fault = fault or ("" if device.memory_mib else device.fault)
    return Observation(device.index, used, utilisation, fault[:FAULT_LENGTH])


class _Child:
    """A running sidecar."""

    def __init__(self, process: subprocess.Popen[bytes], output: asyncio.StreamReader) -> None:
        self.process = process
        self._output = output

    async def line(self, limit_seconds: float) -> Any:
        """Return its next line. Raises `DriverSilent`, or `NoDriver` or `DriverFailed` if no more are to come."""
        try:
            line = await self._next_line(limit_seconds)
            if not line.endswith(b"\n"):
                raise DriverFailed(why="the process that asks the driver has ended")
            said = json.loads(line)
        except TimeoutError:
            raise DriverSilent(limit=limit_seconds) from None
        except ValueError as error:
            raise DriverFailed(why=error) from error
        if _UNUSABLE in said:
            raise NoDriver(**said[_UNUSABLE])
        return said

    async def _next_line(self, limit_seconds: float) -> bytes:
        # Twice half the time: if the whole machine stood still, the first limit may pass before the line is looked for.
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds / 2):
                return await self._output.readline()
        async with asyncio.timeout(limit_seconds / 2):
            return await self._output.readline()


@asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[_Child]:
    """Run a sidecar, which ends with the block. If the kernel holds it, do not wait for it."""
    try:
        process = subprocess.Popen(
            # -P: import nothing from the agent's working directory.
            [sys.executable, "-P", "-m", "node_agent.devices.sidecar", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},
            process_group=0,  # Ctrl-C is the agent's
        )
    except OSError as error:
        raise DriverFailed(why=error) from error
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        output = asyncio.StreamReader(_MOST_OF_A_LINE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), process.stdout
        )
        try:
            yield _Child(process, output)
        finally:
            transport.close()
            await asyncio.sleep(0)  # in which it closes
    finally:
        process.stdin.close()
        process.kill()
        # In a thread, since this may never end, and must not keep the agent from exiting.
        threading.Thread(target=process.wait, daemon=True).start()
