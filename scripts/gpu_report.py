"""Reports on the GPUs of this machine: their tree, their health, the time that each query to the driver takes while they idle
and while a training loop runs, and the memory cycle of such a loop.

Exit status 3: no driver was found. The loop needs a Python that has torch: this one, python3, or --torch-python.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress

import click
import psutil

from node_agent.build_devices import laid_out
from node_agent.devices import nvml, nvml_health
from node_agent.devices.base import DeviceCycle, Inventory
from node_agent.devices.gpus import MEMORY_RATE, Gpus, read_gpus
from node_agent.devices.health import Standing
from node_agent.devices.reading import Reading
from node_agent.devices.topology_text import picture
from node_agent.errors import AgentError, NoDriver

NO_DRIVER = 3
ROUNDS = 200
SECONDS = 20
SIDECAR = "node_agent.devices.sidecar"
DEAR = {"processes", "NVLinks", "health"}
"""Queries that are sent at longer intervals, because they delay other users of the GPU."""

# A mini-batch of about half a second: memory is allocated step by step while the GPU computes, and freed all together.
LOOP = """
import os, sys, threading, time, torch
if not torch.cuda.is_available():
    sys.exit("torch sees no GPU")
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
weight = torch.randn(4096, 4096, device="cuda")
print("ready", flush=True)
while True:
    held = []
    for _ in range(10):
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            made = weight @ weight
            torch.cuda.synchronize()
        held.append(torch.cat([made] * 4))
    del held, made
"""

Latencies = Mapping[str, Sequence[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of questions, for the times")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="to look at the wave of memory for, twice")
    parser.add_argument("--torch-python", help="a Python that has torch")
    given = parser.parse_args()
    try:
        asyncio.run(report(given.rounds, given.seconds, given.torch_python))
    except NoDriver as error:
        click.echo(error)
        sys.exit(NO_DRIVER)
    except AgentError as error:
        sys.exit(str(error))


async def report(rounds: int, seconds: int, torch_python: str | None) -> None:
    reading = await read_gpus()
    inventory, notes = await laid_out(reading, None)
    click.echo(picture(inventory, notes, reading) + "\n")
    if not inventory.devices:
        click.echo("The driver shows no GPU.")
        return
    click.echo(f"Health\n{health()}\n")

    python = with_torch([torch_python] if torch_python else [sys.executable, "python3"])
    environment = Gpus(inventory, reading).environment([0])
    idle, busy = latencies(rounds), None
    if python:
        with load(python, environment):
            busy = latencies(rounds)
    click.echo(f"Microseconds of each question: half of the times no more than, 99 in 100 no more than\n{table(idle, busy)}\n")

    if not python:
        click.echo("No load, and no wave: none of these Pythons has a torch that sees a GPU. Name one: --torch-python")
        return
    click.echo(f"The wave of memory of a loop on device 0, sampled {MEMORY_RATE:g} times a second for {seconds} s")
    for about, extra in (
        ("as torch does it, which keeps what is freed:", {}),
        ("without torch's cache:", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    ):
        with load(python, {**environment, **extra}):
            cycle, cpu = await wave(inventory, reading, seconds)
        click.echo(f"  {about} {shown(cycle)} (seen at {cpu:.2f} % of a core)")


def health() -> str:
    lines = []
    with nvml.open_library():
        for index in range(nvml.count()):
            try:
                said = nvml_health.health(nvml.handle(index))
            except nvml.Failed as error:
                lines.append(f"  GPU {index}: {error}")
                continue
            standing = Standing()
            standing.note_poll(*said)
            told = json.dumps(said._asdict())
            lines.append(f"  GPU {index}: {standing.fault or 'nothing is wrong'} {told}")
    return "\n".join(lines)


def latencies(rounds: int) -> Latencies:
    """Microseconds, over all GPUs."""
    taken: dict[str, list[float]] = {}
    with nvml.open_library():
        devices = [nvml.handle(index) for index in range(nvml.count())]
        for _ in range(rounds):
            for device in devices:
                for name, ask in questions(devices, device):
                    before = taken.setdefault(name, [])
                    if name not in DEAR or len(before) < 20 * len(devices):
                        began = time.perf_counter_ns()
                        with suppress(nvml.Failed):  # an answer, too
                            ask()
                        before.append((time.perf_counter_ns() - began) / 1000)
    return taken


def questions(devices: Sequence[nvml.Handle], device: nvml.Handle) -> Iterator[tuple[str, Callable[[], object]]]:
    memory = nvml.Gauge(device)
    yield "memory in use", memory.used_mib
    if (power := nvml.or_none(lambda: nvml.Power(device))) is not None:
        yield "power", power.watts
        yield "energy used", power.joules
    yield "utilisation", lambda: nvml.utilisation(device)
    yield "processes", lambda: nvml.processes(device)
    yield "health", lambda: nvml_health.health(device)
    yield "name", lambda: nvml.name(device)
    yield "nearest CPUs", lambda: nvml.cpus(device)
    yield "common ancestor", lambda: nvml.common_ancestor(device, devices[-1])
    yield "NVLinks", lambda: nvml.links(device)
    yield "fabric", lambda: nvml.fabric(device)
    yield "MIG instances", lambda: nvml.instances(device)


def table(idle: Latencies, busy: Latencies | None) -> str:
    lines = [f"  {'':16}{'idle':>18}{'under load':>18}"]
    for name, times in idle.items():
        loaded = figures(busy[name]) if busy else "-"
        lines.append(f"  {name:16}{figures(times):>18}{loaded:>18}")
    return "\n".join(lines)


def figures(times: Sequence[float]) -> str:
    ordered = sorted(times)
    return f"{ordered[len(ordered) // 2]:.1f} {ordered[len(ordered) * 99 // 100]:.1f}"


def with_torch(pythons: Sequence[str]) -> str | None:
    """The first of them that has a torch which sees a GPU."""
    for python in pythons:
        if shutil.which(python):
            test = "import sys, torch; sys.exit(not torch.cuda.is_available())"
            if subprocess.run([python, "-c", test], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return python
    return None


@contextmanager
def load(python: str, environment: Mapping[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        [python, "-c", LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"ready\n":
                sys.exit("the loop under torch did not start")
            yield
        finally:
            process.stdin.close()


async def wave(inventory: Inventory, reading: Reading, seconds: int) -> tuple[DeviceCycle | None, float]:
    """The last that was seen of device 0, and the share of a core that it took to see all of them."""
    cycle = None
    began = time.monotonic()
    async with aclosing(Gpus(inventory, reading).observe()) as seen:
        for _ in range(seconds):
            observed = await anext(seen)
            cycle = next((one for one in observed.cycles if one.index == 0), cycle)
        taken = sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children() if SIDECAR in child.cmdline())
    return cycle, 100 * taken / (time.monotonic() - began)


def shown(cycle: DeviceCycle | None) -> str:
    if cycle is None:
        return "nothing was seen"
    found = "no period" if cycle.period_seconds is None else f"a period of {cycle.period_seconds:.3f} s"
    return f"{found}, {cycle.minimum_mib} to {cycle.maximum_mib} MiB, confidence {cycle.confidence:.2f}"


if __name__ == "__main__":
    main()
