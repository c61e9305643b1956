"""For how long a training of 500 MB makes no progress when it migrates between two agents, and where that time goes.

The two agents are on one machine and share no checkpoints, so the checkpoint goes from agent to agent over loopback. The time
without progress is that from the end of the last step at the source to the end of the first one at the destination. The phases
are those of Figure 12 of the Gandiva paper. The same is measured with a destination that starts cold.
"""

import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from client_sdk import Client
from examples.cluster import Cluster

BENCH = "migrate"
MEGABYTES = 500
ROUNDS = 3
LIMIT = 120.0
ROOT = Path(__file__).parents[1]


class Moved(NamedTuple):
    """Seconds."""

    without_progress: float
    save: float
    between: float
    build: float
    load: float
    first_step: float


def run() -> list[Figure]:
    if find_spec("torch") is None:
        return []
    with scratch() as folder, Cluster(folder) as cluster:
        cluster.start_scheduler()
        for node in ("n1", "n2"):
            cluster.start_agent(node, "dgx-a100", "--checkpoints", str(folder / node / "checkpoints"))
        with Client(cluster.address, timeout=LIMIT) as client:
            warm = [_moves(client, folder, f"warm-{number}", {}) for number in range(ROUNDS)]
            cold = [_moves(client, folder, f"cold-{number}", {"NO_EBB_WARM": "1"}) for number in range(ROUNDS)]
    names = (
        ("from the last step to the end of the source's script: the save", "save"),
        ("from there to the start of the destination's script: its end, and the rest of the transfer", "between"),
        ("until the model is built", "build"),
        ("until it has its checkpoint", "load"),
        ("until the end of the first step", "first_step"),
    )
    return [
        figure(BENCH, f"{MEGABYTES} MB: time without progress", _median(warm, "without_progress"), "s", at_most=2.0),
        figure(BENCH, "the same, the longest", max(one.without_progress for one in warm), "s"),
        *(figure(BENCH, text, _median(warm, name), "s") for text, name in names),
        figure(BENCH, "time without progress, if the destination starts cold", _median(cold, "without_progress"), "s"),
        figure(BENCH, "of it, between the two scripts", _median(cold, "between"), "s"),
    ]


def _median(found: list[Moved], name: str) -> float:
    values: list[float] = [getattr(one, name) for one in found]
    return statistics.median(values)


def _moves(client: Client, folder: Path, name: str, more: dict[str, str]) -> Moved:
    times = folder / name
    times.touch()
    environment = {"TIMES": str(times), "MEGABYTES": str(MEGABYTES), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, str(ROOT / "benchmarks" / "migrating_job.py")]
    job = client.submit(command, env=environment, devices=1, grace=60)
    _wait(times, "1 step", 20)
    client.migrate(job, "n2" if client.get(job).node == "n1" else "n1")
    _wait(times, "2 step", 20)
    client.cancel(job)
    client.wait(job, timeout=LIMIT)
    return _read(times)


def _wait(times: Path, line: str, count: int) -> None:
    limit = time.monotonic() + LIMIT
    while times.read_text().count(f"{line} ") < count:
        if time.monotonic() > limit:
            raise RuntimeError(f"not {count} times {line!r} within {LIMIT:g} s:\n{times.read_text()[-2000:]}")
        time.sleep(0.05)


def _read(times: Path) -> Moved:
    found: dict[tuple[str, str], list[float]] = {}
    for line in times.read_text().splitlines():
        run, what, at = line.split()
        found.setdefault((run, what), []).append(float(at))
    last, exits = found["1", "step"][-1], found["1", "exits"][0]
    began, built, loaded, first = (found["2", what][0] for what in ("began", "built", "loaded", "step"))
    return Moved(first - last, exits - last, began - exits, built - began, loaded - built, first - loaded)
