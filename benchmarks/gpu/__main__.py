"""`python3 -m benchmarks.gpu`: what parking costs on this machine's first GPU. Writes build/bench-gpu.json.

Two programs are trained by processes that find the hook as a job does, and are parked and resumed as an agent would: ResNet-50,
and a GPT with up to 24 GB of weights, gradients and optimizer state, both with AdamW. Beside them are the bandwidth of
page-locked memory, what the hook adds to a step, and NVML's latencies under load (scripts/gpu_report.py) if this Python has
what that needs.

Needs a Python with PyTorch. Exit status 3: there is none, or PyTorch sees no GPU. `--device cpu` runs the same with tiny models
on the CPU, which shows that the bench works and says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.program import HERE, started
from benchmarks.gpu.used import reader, seconds_until
from ebb_inject.ebb_hook import control

NO_GPU = 3
OUTPUT = Path("build/bench-gpu.json")
ROUNDS = 5
LARGEST = 24 * 10**9
"""Bytes of the GPT."""
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
    given = parser.parse_args()
    if find_spec("torch") is None:
        print(f"{sys.executable} has no PyTorch. Name a Python that has it: make bench-gpu PYTHON=...", file=sys.stderr)
        return NO_GPU
    version, name, uuid = _told(_SEES)
    if given.device == "cuda" and not name:
        print(f"PyTorch {version} of {sys.executable} sees no GPU, so there is nothing to measure.", file=sys.stderr)
        return NO_GPU
    print(f"PyTorch {version}, {name or 'no GPU'}")
    rows: list[tuple[str, float, str, float | None]] = []
    size = (1 << 30) if given.device == "cuda" else (16 << 20)
    band = json.loads(_output([sys.executable, str(HERE / "bandwidth.py"), given.device, str(size)]))
    rows += [
        ("copy out, page-locked" if band["pinned"] else "copy out, not page-locked", band["out"] / 1e9, "GB/s", None),
        ("copy back", band["back"] / 1e9, "GB/s", None),
        ("making the arena", band["allocate"] * 1e9, "s/GB", None),
    ]
    rows += parks(given.device, uuid, given.rounds, band, "resnet50", "ResNet-50", 0.05)
    rows += parks(given.device, uuid, given.rounds, band, "gpt", "GPT", 1.2, str(_blocks(given.device)))
    rows += overhead(given.device)
    if given.device == "cpu":
        rows = [(*row[:3], None) for row in rows]  # the targets are those of a GPU
    _print(rows)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps({"torch": version, "gpu": name, "rows": rows}, indent=1) + "\n")
    print(f"figures in {OUTPUT}")
    if given.device == "cuda":
        _latencies()
    return 0


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
    """What the hook adds to a step of ResNet-50. Programs with and without the hook take turns."""
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
    """What another process says, so that this one has no context on the GPU."""
    return json.loads(_output([sys.executable, "-c", code]))


def _output(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _latencies() -> None:
    """NVML's latencies while a loop runs: the report of `make gpu-report`."""
    if missing := [name for name in ("click", "psutil", "pynvml", "networkx") if find_spec(name) is None]:
        print(f"NVML's latencies are left out: {sys.executable} has no {', '.join(missing)}. See make gpu-report.")
        return
    root = str(HERE.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, f"{root}/proto", f"{root}/third_party"])}
    command = [sys.executable, f"{root}/scripts/gpu_report.py", "--torch-python", sys.executable]
    subprocess.run(command, env=environment, check=True)


def _print(rows: Any) -> None:
    width = max(len(name) for name, *_ in rows)
    for name, value, unit, most in rows:
        target = "" if most is None else f"   at most {most:g}: {'met' if value <= most else 'missed'}"
        print(f"{name:<{width}}  {value:12,.3f} {unit}{target}")


if __name__ == "__main__":
    sys.exit(main())
