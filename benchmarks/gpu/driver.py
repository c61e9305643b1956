"""NVIDIA's checkpoint of whole processes, through the agent's own port: at any moment, and after a park by the hook.

The training continues bit for bit: its losses are compared with those of an undisturbed program.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
from typing import TYPE_CHECKING

from benchmarks.gpu.program import started
from benchmarks.gpu.used import reader
from ebb_inject.ebb_hook import control
from node_agent.devices.driver_checkpoint import HELPER, DriverCheckpoint, Outcome
from node_agent.run_state.park_state import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gpu.program import Program

LIMIT = 60.0
BEFORE, BETWEEN = 30, 15
"""Steps until the first checkpoint, and between two."""


def checkpoints(
    device: str, uuid: str, rounds: int, kind: str, title: str, *more: str, helper: Sequence[str] = HELPER
) -> list[tuple[str, float, str, float | None]]:
    """Suspends and resumes a program several times. Raises RuntimeError if the driver does not do so."""
    arguments = (kind, device, *more, "--report", "1", "--deterministic")
    length = BEFORE + rounds * BETWEEN
    with started(device, *arguments, hooked=False) as one, started(device, *arguments, hooked=False) as other:
        undisturbed = [[program.line()["loss"] for _ in range(length)] for program in (one, other)]
    rows: list[tuple[str, float, str, float | None]] = []
    for hooked, when in ((False, "at any moment"), (True, "after a park by the hook")):
        with started(device, *arguments, hooked=hooked) as program:
            seen, losses = asyncio.run(_rounds(program, device, uuid, rounds, hooked, helper))
        rows += [
            (f"{title}, {when}: {what}", statistics.median(each[name] for each in seen) * times, unit, None)
            for what, name, times, unit in _FIGURES
            if name in seen[0]
        ]
        same = sum(a == b for a, b in zip(losses, undisturbed[0], strict=False))
        rows.append((f"{title}, {when}: losses as those of an undisturbed program, of {length}", same, "", None))
        print(*(each for each in rows if when in each[0]), sep="\n", flush=True)
    same = sum(a == b for a, b in zip(*undisturbed, strict=True))
    rows.append((f"{title}: equal losses of two undisturbed programs, of {length}", same, "", None))
    return rows


_FIGURES = (
    ("the park before", "park", 1e3, "ms"),
    ("in use on the device before", "used", 1e-9, "GB"),
    ("suspend", "suspend", 1e3, "ms"),
    ("left in use on the device", "left", 1e-9, "GB"),
    ("host memory of the process while suspended", "host", 1e-9, "GB"),
    ("resume", "resume", 1e3, "ms"),
    ("resume by the hook", "fill", 1e3, "ms"),
)


async def _rounds(
    program: Program, device: str, uuid: str, rounds: int, hooked: bool, helper: Sequence[str]
) -> tuple[list[dict[str, float]], list[float]]:
    pid = program.process.pid
    _, used = reader(device, uuid, pid)
    driver = DriverCheckpoint(helper)
    try:
        if why := await driver.unusable():
            raise RuntimeError(why)
        losses = [program.line()["loss"] for _ in range(BEFORE)]
        seen = []
        for _ in range(rounds):
            each: dict[str, float] = {"used": used()}
            if hooked:
                parked, _ = program.ask(control.PARK)
                each["park"] = sum(parked["seconds"].values())
            each["suspend"] = _done(await driver.suspend(pid, lock_seconds=5.0, limit_seconds=LIMIT))
            program.process.send_signal(signal.SIGSTOP)
            each |= {"left": used(), "host": _resident(pid)}
            program.process.send_signal(signal.SIGCONT)
            each["resume"] = _done(await driver.resume(pid, limit_seconds=LIMIT))
            if hooked:
                each["fill"] = program.ask(control.RESUME)[0]["seconds"]["fill"]
            seen.append(each)
            losses += [program.line()["loss"] for _ in range(BETWEEN)]
        return seen, losses
    finally:
        await driver.close()


def _done(outcome: Outcome) -> float:
    if outcome.verdict is not Verdict.DONE:
        raise RuntimeError(f"{outcome.verdict}: {outcome.why} (state {outcome.state}, after {outcome.seconds:.1f} s)")
    return outcome.seconds


def _resident(pid: int) -> float:
    with open(f"/proc/{pid}/status") as lines:  # noqa: PTH123
        return float(next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:")))


def _main() -> None:
    import json
    import sys

    device, uuid, kind, *more = sys.argv[1:]
    print(json.dumps(checkpoints(device, uuid, 3, kind, kind, *more)))


if __name__ == "__main__":
    _main()
