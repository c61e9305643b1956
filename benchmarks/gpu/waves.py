"""The mini-batch time of a training, as the agent reads it from outside: from waves of memory, power and utilisation."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from benchmarks.gpu.program import started
from node_agent.build_devices import laid_out
from node_agent.devices.gpus import MEMORY_RATE, Gpus, read_gpus

if TYPE_CHECKING:
    from benchmarks.gpu.program import Program

NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
SECONDS = 15


def waves(device: str, kind: str, title: str, batch: int, seconds: int = SECONDS) -> list[tuple[str, float, str, float | None]]:
    """Measure the detected period next to the true one. -1: none was detected."""
    rows: list[tuple[str, float, str, float | None]] = []
    for what, more in (("without torch's cache", NO_CACHE), ("as torch is", {})):
        os.environ |= more
        try:
            with started(device, kind, device, "--batch", str(batch), "--report", "1", hooked=False) as program:
                for _ in range(5):
                    program.line()
                true, seen = asyncio.run(_watched(program, seconds))
        finally:
            for name in more:
                del os.environ[name]
        name = f"{title} of {batch} {what}"
        rows.append((f"{name}: a mini-batch", true, "s", None))
        for source, (period, confidence) in seen.items():
            rows.append((f"{name}: period by {source}, confidence {confidence:.2f}", period, "s", None))
    return rows


async def _watched(program: Program, seconds: int) -> tuple[float, dict[str, tuple[float, float]]]:
    reading = await read_gpus()
    inventory, _ = await laid_out(reading, None)
    seen = {"memory": (-1.0, 0.0)}
    began = time.monotonic()
    async with aclosing(Gpus(inventory, reading, memory_rate=MEMORY_RATE).observe()) as looks:
        async for look in looks:
            for cycle in look.cycles:
                seen["memory"] = (cycle.period_seconds or -1.0, cycle.confidence)
            for period in look.activity:
                seen[period.source.value] = (period.period_seconds, period.confidence)
            if time.monotonic() > began + seconds:
                break
    times = []
    while (line := program.line())["at"] < time.monotonic() - 1.0:
        if line["at"] > began:
            times.append(line["seconds"])
    return statistics.mean(times), seen
