"""`python -m benchmarks [NAME ...]`: runs the benches, prints a table, writes build/bench.json.

A missed target is said and is no failure; a bench that breaks is one.
"""

import json
import os
import platform
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BENCHES = (
    *("submit_to_start", "submit_rate", "end_to_end_rate", "step_cost", "memory_cycles", "hook", "park_cpu", "agent_cost"),
    "timeslice",
    *("estimates", "introspection"),
    *("agents_2000", "fidelity", "sim_fitgpp", "sim_philly", "affinity", "cells", "suppositions", "matching", "long_queue"),
    *("failover", "failover_under_load", "gang_stop", "gang_park", "checkpoint", "migrate", "trial_start"),
)
OUTPUT = Path("build/bench.json")
MACHINE = Path("build/machine.json")

Figures = list[Mapping[str, Any]]


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHES)
    if unknown:
        print(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    console = Console()
    before = machine()
    console.print(", ".join(f"{name}: {value}" for name, value in before.items()))
    figures: Figures = []
    broken = []
    for name in names or BENCHES:
        console.print(f"[bold]{name}[/] (load average {os.getloadavg()[0]:.2f})")
        try:
            figures += import_module(f"benchmarks.{name}").run()
        except Exception:
            traceback.print_exc()
            broken.append(name)
    console.print(table(figures))
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(figures, indent=1) + "\n")
    MACHINE.write_text(json.dumps(before, indent=1) + "\n")
    missed = sum(figure["met"] is False for figure in figures)
    console.print(f"{len(figures)} figures, {missed} of them miss their target")
    console.print(f"figures in {OUTPUT}, the machine in {MACHINE}")
    if broken:
        console.print(f"[red]broken: {', '.join(broken)}[/]")
    return 1 if broken else 0


def machine() -> dict[str, Any]:
    """Return the machine on which the figures were measured, and its load."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
    }


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def table(figures: Iterable[Mapping[str, Any]]) -> Table:
    shown = Table("bench", "metric", "value", "target", "met")
    for figure in figures:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[figure["met"]]
        value = f"{figure['value']:,g} {figure['unit']}"
        shown.add_row(figure["bench"], figure["metric"], value, str(figure["target"]), met)
    return shown


def terminated(number: int, _frame: object) -> None:
    """Ends the bench under way, so that it stops what it started; undisturbed by a second signal."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminated)
    sys.exit(main(sys.argv[1:]))
