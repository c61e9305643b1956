"""Suspends a process with all that it has on its GPU, by NVIDIA's driver: lock, checkpoint, restore, unlock (ADR 44).

The driver moves the device memory to the host's, without the program's cooperation. The driver cannot do so for programs of
several GPUs, nor with MIG, MPS or managed memory. It needs an x86-64 machine, and version 570 or later (580 to restore on
another GPU).

The process must be able to run meanwhile, because one of its own threads copies the memory: send SIGSTOP after `suspend` and
SIGCONT before `resume`. The driver copies what the program has reserved, so an allocator should first give back its cache.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

from node_agent.run_state.park_state import Verdict

HELPER = (sys.executable, "-P", "-m", "node_agent.devices.checkpoint_helper")
START_LIMIT = 60.0
"""Seconds within which the helper must initialize the driver, as with NVML."""
_ASK_LIMIT = 10.0
"""Seconds to ask for the state of a process, after another call has failed."""
_MARGIN = 5.0
"""Seconds added to the driver's own limit for a lock before the helper counts as hanging."""


class ProcessState(StrEnum):
    """The state of a process according to the driver."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"


class Outcome(NamedTuple):
    verdict: Verdict
    state: ProcessState | None
    """None: the driver does not say."""
    seconds: float
    why: str = ""
    """Why it was refused, or is lost."""


def reason_against(gpus: int, *, mig: bool, mps: bool, machine: str) -> str:
    """Return why the driver cannot suspend a process, as far as is known beforehand; empty: no reason is known."""
    if machine != "x86_64":
        return f"the driver checkpoints on x86-64 only, and this machine is {machine}"
    if gpus != 1:
        return f"the driver checkpoints processes of one GPU, and this one has {gpus}"
    if mig:
        return "the driver cannot checkpoint a process on a MIG instance"
    if mps:
        return "the driver cannot checkpoint a client of MPS"
    return ""


class DriverCheckpoint:
    """The driver of this machine, asked through a helper process that is started on demand. One request at a time."""

    def __init__(self, helper: Sequence[str] = HELPER) -> None:
        self._command = helper
        self._helper: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def unusable(self) -> str:
        """Return why this machine cannot checkpoint; empty if it can."""
        async with self._turn:
            return await self._start()

    async def suspend(self, pid: int, *, lock_seconds: float, limit_seconds: float) -> Outcome:
        """Lock a running process and move its memory off the GPU, or leave it running.

        `lock_seconds` is the time for the CUDA calls in progress; `limit_seconds` is that for the checkpoint.
        """
        began = time.monotonic()
        milliseconds = max(1, round(lock_seconds * 1000))  # 0 would mean: without a limit
        async with self._turn:
            locked = await self._call("lock", pid, lock_seconds + _MARGIN, timeout_ms=milliseconds)
            if locked.state is not ProcessState.LOCKED:
                return _failed_outcome(locked, began)
            taken = await self._call("checkpoint", pid, limit_seconds)
            if taken.state is ProcessState.CHECKPOINTED:
                return Outcome(Verdict.DONE, taken.state, time.monotonic() - began)
            if taken.state is ProcessState.LOCKED:
                undone = await self._call("unlock", pid, _ASK_LIMIT)
                taken = undone._replace(error=taken.error)
            return _failed_outcome(taken, began, changed=True)

    async def resume(self, pid: int, *, limit_seconds: float, gpu_pairs: Mapping[str, str] | None = None) -> Outcome:
        """Give a suspended process its memory back and let it run.

        `gpu_pairs` maps the UUID of every GPU of the machine to that of the GPU that gets its contents. Without it, everything
        returns to its old GPU.
        """
        began = time.monotonic()
        async with self._turn:
            restored = await self._call("restore", pid, limit_seconds, gpu_pairs=dict(gpu_pairs or {}))
            if restored.state is not ProcessState.LOCKED:
                return _failed_outcome(restored, began)
            running = await self._call("unlock", pid, limit_seconds)
            if running.state is ProcessState.RUNNING:
                return Outcome(Verdict.DONE, running.state, time.monotonic() - began)
            return _failed_outcome(running, began, changed=True)

    async def state(self, pid: int) -> ProcessState | None:
        """Return the state of a process according to the driver, such as after a restart of the agent; None if unknown."""
        async with self._turn:
            return (await self._call("state", pid, _ASK_LIMIT)).state

    async def close(self) -> None:
        """End the helper. Suspended processes stay suspended."""
        async with self._turn:
            await self._end()

    async def _call(self, call: str, pid: int, limit_seconds: float, **more: Any) -> "_Answer":
        """Make one call of the driver. If the helper does not answer in time, ask another one for the state of the process."""
        said = await self._ask(call, pid, limit_seconds, **more)
        if said.state is None and call != "state":
            asked = await self._ask("state", pid, _ASK_LIMIT)
            said = said._replace(state=asked.state)
        return said

    async def _ask(self, call: str, pid: int, limit_seconds: float, **more: Any) -> "_Answer":
        if why := await self._start():
            return _Answer(None, why)
        assert self._helper is not None
        assert self._helper.stdin is not None
        try:
            async with asyncio.timeout(limit_seconds):
                self._helper.stdin.write(json.dumps({"call": call, "pid": pid, **more}).encode() + b"\n")
                await self._helper.stdin.drain()
                said = await self._line()
            return _Answer(None if said["state"] is None else ProcessState(said["state"]), said["error"])
        except TimeoutError:
            await self._end()
            return _Answer(
                None, f"{call} of process {pid}: the driver has not answered within {limit_seconds:g} s", silent=True
            )
        except (OSError, ValueError, KeyError) as error:
            await self._end()
            return _Answer(None, f"{call} of process {pid}: the process that asks the driver has failed: {error}", silent=True)
        except asyncio.CancelledError:
            await self._end()  # its answer would be taken for that of the next request
            raise

    async def _start(self) -> str:
        """Ensure that a helper runs; return why none can."""
        if self._helper is not None and self._helper.returncode is None:
            return ""
        try:
            self._helper = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # (uvloop knows no process_group)
            )
            async with asyncio.timeout(START_LIMIT):
                why = str((await self._line())["unusable"])
        except TimeoutError:
            why = f"the driver cannot be initialised within {START_LIMIT:g} s"
        except (OSError, ValueError, KeyError) as error:
            why = f"the process that asks the driver cannot be started: {error}"
        except asyncio.CancelledError:
            await self._end()
            raise
        if why:
            await self._end()
        return why

    async def _line(self) -> Any:
        assert self._helper is not None
        assert self._helper.stdout is not None
        line = await self._helper.stdout.readline()
        if not line.endswith(b"\n"):
            raise ValueError("it has exited")
        return json.loads(line)

    async def _end(self) -> None:
        helper, self._helper = self._helper, None
        if helper is None or helper.returncode is not None:
            return
        with suppress(ProcessLookupError):
            helper.kill()
        # A process that hangs in the kernel remains until the kernel releases it; do not wait for it.
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await helper.wait()


class _Answer(NamedTuple):
    state: ProcessState | None
    error: str
    silent: bool = False
    """The request may have begun, and its result is unknown."""


def _failed_outcome(answer: _Answer, began: float, *, changed: bool = False) -> Outcome:
    """Return the outcome of a request that was not done. `changed`: the process was locked or restored before."""
    unknown = answer.state is None and (changed or answer.silent)
    lost = unknown or answer.state in (ProcessState.FAILED, ProcessState.LOCKED)
    return Outcome(Verdict.LOST if lost else Verdict.REFUSED, answer.state, time.monotonic() - began, answer.error)
