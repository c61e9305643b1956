"""A whole Ebb on this machine's first GPU: a scheduler with its database, and agents that share the GPU between jobs.

Each part submits jobs as a user does, and reads their own lines: which step was done at which time. Needs Ebb's environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.program import HERE
from benchmarks.scratch import scratch
from client_sdk import Client
from examples.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LIMIT = 120.0
WITH_MPS, WITHOUT = "mps", "plain"
"""Two nodes that are one machine: on the one, packed jobs are clients of MPS."""
ALONE = 8.0
"""Seconds for the rate of a job."""
ROOT = HERE.parents[1]
WHOLE = "time without progress"

Line = dict[str, Any]
Rows = list[tuple[str, float, str, "float | None"]]


class Site:
    """The cluster, and the jobs of this bench."""

    def __init__(self, cluster: Cluster, client: Client, device: str) -> None:
        self.cluster, self.client, self.device = cluster, client, device

    def submit(self, *arguments: str, program: str = "train.py", env: dict[str, str] | None = None, **options: Any) -> int:
        environment = {"OMP_NUM_THREADS": "1", **(env or {})}
        command = [sys.executable, str(HERE / program), *arguments]
        if self.device == "cpu" and program == "train.py":
            command = ["env", "EBB_PARK_DEVICES=cpu", *command]  # for the hook; users cannot set such names for a job
        job = self.client.submit(command, env=environment, export="ALL", memory="4GiB", grace=30, **options)
        return job.id

    def lines(self, job: int) -> list[Line]:
        """Return the output lines of its last run."""
        path = self.client.get(job).log_path
        found = []
        for line in Path(path).read_text().splitlines() if path and Path(path).exists() else ():
            with suppress(ValueError):
                found.append(json.loads(line))
        return [line for line in found if "at" in line]

    def until(self, job: int, lines: int) -> None:
        """Waits until its run has written so many lines."""
        self.wait(job, partial(self.has_lines, job, lines), f"has not written {lines} lines")

    def has_lines(self, job: int, lines: int) -> bool:
        return len(self.lines(job)) >= lines

    def is_parked(self, job: int) -> bool:
        return self.client.get(job).parked

    def wait(self, job: int, what: Callable[[], bool], otherwise: str) -> float:
        began = time.monotonic()
        while not what():
            if time.monotonic() > began + LIMIT or self.client.get(job).state.ended:
                raise RuntimeError(f"job {job} {otherwise}:\n{self.told(job)}")
            time.sleep(0.01)
        return time.monotonic() - began

    def told(self, job: int) -> str:
        """Its story, and the end of its log."""
        found = self.client.get(job)
        log = Path(found.log_path or "/dev/null")
        story = [f"{event.kind.name} {event.reason.name} {event.text}" for event in self.client.story(job)]
        return "\n".join([*story, *(log.read_text().splitlines()[-5:] if log.exists() else ())])

    def end(self, *jobs: int) -> None:
        for job in jobs:
            self.client.cancel(job)
        for job in jobs:
            self.client.wait(job, timeout=LIMIT)

    def rates(self, *jobs: int, seconds: float) -> list[float]:
        """Steps a second of each over the same time, from the first line in it to the last one."""
        for job in jobs:
            self.until(job, 3)
        began = time.monotonic()
        time.sleep(seconds)
        found = []
        for job in jobs:
            (first, *_, last) = (line for line in self.lines(job) if line["at"] >= began)
            found.append((last["steps"] - first["steps"]) / (last["at"] - first["at"]))
        return found


@contextmanager
def site(device: str, *nodes: str) -> Iterator[Site]:
    with scratch() as folder, Cluster(folder) as cluster:
        cluster.start_scheduler()
        for node in nodes:
            flags = [
                "--parked-memory-mib",
                "60000",
                "--checkpoints",
                str(folder / node / "checkpoints"),
                "--log-level",
                "debug",
            ]
            mps = ["--mps", "packed"] if node == WITH_MPS and device == "cuda" else []
            cluster.start_agent(node, "nvml" if device == "cuda" else "pcie-2", *flags, *mps)
        with Client(cluster.address, timeout=LIMIT) as client:
            try:
                yield Site(cluster, client, device)
            except BaseException:
                for name in ("scheduler", *nodes):
                    print(f"--- the end of the log of {name}\n{cluster.tail(name, 30)}", file=sys.stderr)
                raise


def steps_at(lines: Sequence[Line], at: float) -> float:
    """Steps done at a time, between two lines in proportion. A time after the last line counts as that of the last line."""
    before = [line for line in lines if line["at"] <= at]
    after = [line for line in lines if line["at"] > at]
    if not before:
        return 0.0
    if not after:
        return float(before[-1]["steps"])
    (a, b) = before[-1], after[0]
    return float(a["steps"] + (b["steps"] - a["steps"]) * (at - a["at"]) / (b["at"] - a["at"]))


# ---- parks -----------------------------------------------------------------------------------------------------------------


def parks(here: Site, rounds: int, large: str) -> Rows:
    """Suspends and resumes jobs in place, as `ebb suspend --park` does, by the first two rungs of the ladder."""
    rows: Rows = []
    for title, arguments in (("ResNet-50", ("resnet50",)), ("GPT", ("gpt", large))):
        for rung, env in (("hook", {}), ("driver", {"NO_EBB_HOOK": "1"})):
            if rung == "driver" and here.device == "cpu":
                continue
            with _labelled(rows, f"{title}, parked by the scheduler ({rung})"):
                command = arguments[0], here.device, *arguments[1:], "--report", "1"
                job = here.submit(*command, devices=1, nodes=WITHOUT, env=env)
                here.until(job, 3)
                if rung == "driver":
                    time.sleep(2.0)  # until the agent has seen what it has on the device
                parked, resumed = [], []
                for _ in range(rounds):
                    here.client.suspend(job, park=True, park_only=True)
                    parked.append(here.wait(job, partial(here.is_parked, job), "is not parked"))
                    time.sleep(0.5)
                    count = len(here.lines(job))
                    here.client.resume(job)
                    resumed.append(here.wait(job, partial(here.has_lines, job, count + 1), "does not resume"))
                    here.until(job, count + 5)
                print(here.told(job), flush=True)
                name, middle = f"{title}, by the {rung}: from the order until", rounds // 2
                rows += [
                    (f"{name} it is parked", 1e3 * sorted(parked)[middle], "ms", None),
                    (f"{name} the end of a step", 1e3 * sorted(resumed)[middle], "ms", None),
                ]
                here.end(job)
    return rows


# ---- turns -----------------------------------------------------------------------------------------------------------------


def turns(here: Site, cycles: int, first: tuple[str, ...], second: tuple[str, ...], period: float = 60.0) -> Rows:
    """Two jobs of half a device each, in turns of half a minute: what each gets of its own rate, and what switching costs."""
    # Without `gpu_memory` a job may use all of the device, and two of them need as much host memory for what is parked.
    parts: dict[str, Any] = {"devices": 0.5, "gpu_memory": "24GiB", "share": "sliced", "nodes": WITHOUT}
    one = here.submit(first[0], here.device, *first[1:], "--report", "1", **parts)
    here.until(one, 30)
    (own,) = here.rates(one, seconds=12.0)
    two = here.submit(second[0], here.device, *second[1:], "--report", "1", **parts)
    here.until(two, 20)
    began = time.monotonic()
    time.sleep(cycles * period)
    ended = time.monotonic()
    taken = [steps_at(lines, ended) - steps_at(lines, began) for lines in map(here.lines, (one, two))]
    here.end(one)
    count = len(here.lines(two))
    here.until(two, count + 5)
    (other,) = here.rates(two, seconds=12.0)
    print(here.told(two), flush=True)
    here.end(two)
    shares = [steps / (ended - began) / alone for steps, alone in zip(taken, (own, other), strict=True)]
    names = f"{' '.join(first)} and {' '.join(second)}"
    return [
        (f"turns, {names}: rate of the first alone", own, "steps/s", None),
        (f"turns, {names}: rate of the second alone", other, "steps/s", None),
        (f"turns, {names}: the first in turns, of its own rate", 100 * shares[0], "%", None),
        (f"turns, {names}: the second in turns, of its own rate", 100 * shares[1], "%", None),
        (f"turns, {names}: lost by switching every {period / 2:g} s", 100 * (1 - sum(shares)), "%", 2.0),
    ]


# ---- packing ---------------------------------------------------------------------------------------------------------------


def packing(here: Site, node: str, kind: str, title: str, count: int, memory: str, report: str) -> Rows:
    """One job, and several of the same on one GPU at the same time. Time slicing would give all of them together one's rate."""
    arguments = (kind, here.device, "--report", report)
    options: dict[str, Any] = {"gpu_memory": memory, "share": "packed", "nodes": node}
    jobs = [here.submit(*arguments, **options)]
    rows: Rows = []
    name = f"{title} on node {node}"
    (alone,), busy = _with_utilisation(lambda: here.rates(jobs[0], seconds=ALONE))
    rows += [(f"{name}, 1 job", alone, "mini-batches/s", None), (f"{name}, 1 job: utilisation", busy, "%", None)]
    jobs += [here.submit(*arguments, **options) for _ in range(count - 1)]
    for job in jobs:
        here.until(job, 5)
    together, busy = _with_utilisation(lambda: here.rates(*jobs, seconds=ALONE))
    rows += [
        (f"{name}, {count} jobs packed", sum(together), "mini-batches/s", None),
        (f"{name}, {count} jobs packed: utilisation", busy, "%", None),
        (f"{name}, {count} jobs packed, against turns", sum(together) / alone, "times", None),
    ]
    print(here.told(jobs[-1]), flush=True)
    here.end(*jobs)
    return rows


def _with_utilisation(measured: Callable[[], list[float]]) -> tuple[list[float], float]:
    """The mean of what NVML says meanwhile; -1: it says nothing."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        import pynvml  # type: ignore[import-untyped]

        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            device = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not over.wait(0.2):
                seen.append(int(pynvml.nvmlDeviceGetUtilizationRates(device).gpu))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        found = measured()
    finally:
        over.set()
        thread.join()
    return found, sum(seen) / len(seen) if seen else -1.0


# ---- migration -------------------------------------------------------------------------------------------------------------


def migration(here: Site, title: str, *arguments: str, moves: int = 2) -> Rows:
    """A job that saves its checkpoint moves between the two nodes: from its last step on the one to its first on the other."""
    times = here.cluster.folder / f"times-{title}"
    times.touch()
    path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = {"TIMES": str(times), "PYTHONPATH": path}
    job = here.submit(*arguments, program="migrating.py", devices=1, env=environment)
    found: list[dict[str, float]] = []
    for run in range(1, moves + 2):
        here.wait(job, partial(_has_stepped, times, run), f"takes no steps in run {run}")
        if run > 1:
            found.append(_phases(times, run))
            print(title, found[-1], flush=True)
        if run <= moves:
            here.client.migrate(job, WITHOUT if here.client.get(job).node == WITH_MPS else WITH_MPS)
    print(here.told(job), flush=True)
    here.end(job)
    return [
        (f"migration of {title}: {name}", sum(each[name] for each in found) / len(found), "s", 3.5 if name == WHOLE else None)
        for name in found[0]
    ]


def _has_stepped(times: Path, run: int) -> bool:
    return times.read_text().count(f"\n{run} step ") >= 30


def _phases(times: Path, run: int) -> dict[str, float]:
    seen: dict[tuple[int, str], list[float]] = {}
    for line in times.read_text().splitlines():
        if line:
            number, what, at = line.split()[:3]
            seen.setdefault((int(number), what), []).append(float(at))
    last, exits = seen[run - 1, "step"][-1], seen[run - 1, "exits"][0]
    began, built, loaded, first = (seen[run, what][0] for what in ("began", "built", "loaded", "step"))
    return {
        WHOLE: first - last,
        "save": exits - last,
        "between": began - exits,
        "build": built - began,
        "load": loaded - built,
        "first": first - loaded,
    }


@contextmanager
def _labelled(rows: Rows, title: str) -> Iterator[None]:
    """Report an error as a row, and continue with the rest."""
    try:
        yield
    except Exception as error:
        print(f"{title}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        rows.append((f"{title}: failed", float("nan"), "", None))
