"""For how long a training of 500 MB makes no progress when it migrates between two agents, and where that time goes.

The two agents are on one machine and share no checkpoints: by default the one has the kernel copy the files of the other, as
agents of one machine do, and then they are told to fetch them over the network, which is the loopback device here. The time
without progress is that from the end of the last step at the source to the end of the first one at the destination. The phases
are those of Figure 12 of the Gandiva paper. Processor time is what counts on a machine that does other work, too. The same is
measured with a destination that starts cold.
"""

import os
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
    """Seconds; with `cpu_`, of processor time."""

    without_progress: float
    save: float
    between: float
    build: float
    load: float
    first_step: float
    cpu_save: float
    cpu_load: float
    cpu_source: float
    """CPU time of the agent, from the order to migrate to the first steps at the destination."""
    cpu_destination: float


_PHASES = (
    ("from the last step to the end of the source's script: the save", "save"),
    ("from there to the start of the destination's script: its end, and the rest of the transfer", "between"),
    ("until the model is built", "build"),
    ("until it has its checkpoint", "load"),
    ("until the end of the first step", "first_step"),
)
_CPU = (
    ("the save", "cpu_save"),
    ("loading, from the start of the script to the end of the first step", "cpu_load"),
    ("the agent of the source", "cpu_source"),
    ("the agent of the destination", "cpu_destination"),
)


def run() -> list[Figure]:
    if find_spec("torch") is None:
        return []
    copied = _rounds("copied", ("--checkpoint-copies", "auto"), {})
    fetched = _rounds("fetched", ("--checkpoint-copies", "network"), {})
    cold = _rounds("cold", ("--checkpoint-copies", "auto"), {"NO_EBB_WARM": "1"})
    return [
        figure(BENCH, f"{MEGABYTES} MB: time without progress", _median(copied, "without_progress"), "s", at_most=2.0),
        figure(BENCH, "the same, the longest", max(one.without_progress for one in copied), "s"),
        *(figure(BENCH, text, _median(copied, name), "s") for text, name in _PHASES),
        *(figure(BENCH, f"processor time of {text}", _median(copied, name), "s") for text, name in _CPU),
        figure(BENCH, "over the network: time without progress", _median(fetched, "without_progress"), "s"),
        figure(BENCH, "of it, between the two scripts", _median(fetched, "between"), "s"),
        *(figure(BENCH, f"processor time of {text}", _median(fetched, name), "s") for text, name in _CPU[2:]),
        figure(BENCH, "time without progress, if the destination starts cold", _median(cold, "without_progress"), "s"),
        figure(BENCH, "of it, between the two scripts", _median(cold, "between"), "s"),
    ]


def _rounds(name: str, flags: tuple[str, ...], more: dict[str, str]) -> list[Moved]:
    with scratch() as folder, Cluster(folder) as cluster:
        cluster.start_scheduler()
        for node in ("n1", "n2"):
            cluster.start_agent(node, "dgx-a100", "--checkpoints", str(folder / node / "checkpoints"), *flags)
        with Client(cluster.address, timeout=LIMIT) as client:
            return [_moves(client, cluster, f"{name}-{number}", more) for number in range(ROUNDS)]


def _median(found: list[Moved], name: str) -> float:
    values: list[float] = [getattr(one, name) for one in found]
    return statistics.median(values)


def _moves(client: Client, cluster: Cluster, name: str, more: dict[str, str]) -> Moved:
    times = cluster.folder / name
    times.touch()
    environment = {"TIMES": str(times), "MEGABYTES": str(MEGABYTES), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, str(ROOT / "benchmarks" / "migrating_job.py")]
    job = client.submit(command, env=environment, devices=1, grace=60)
    _wait(times, "1 step", 20)
    source = client.get(job).node
    destination = "n2" if source == "n1" else "n1"
    agents = [cluster.processes[str(node)].pid for node in (source, destination)]
    before = [_processor_time(pid) for pid in agents]
    client.migrate(job, destination)
    _wait(times, "2 step", 20)
    used = [_processor_time(pid) - then for pid, then in zip(agents, before, strict=True)]
    client.cancel(job)
    client.wait(job, timeout=LIMIT)
    return _read(times, *used)


def _processor_time(pid: int) -> float:
    """Return the processor time of a process and its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait(times: Path, line: str, count: int) -> None:
    limit = time.monotonic() + LIMIT
    while times.read_text().count(f"{line} ") < count:
        if time.monotonic() > limit:
            raise RuntimeError(f"not {count} times {line!r} within {LIMIT:g} s:\n{times.read_text()[-2000:]}")
        time.sleep(0.05)


def _read(times: Path, *agents: float) -> Moved:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for line in times.read_text().splitlines():
        run, what, at, used = line.split()
        found.setdefault((run, what), []).append((float(at), float(used)))
    (last, last_used), (exits, exits_used) = found["1", "step"][-1], found["1", "exits"][0]
    (began, _), (built, _), (loaded, _) = (found["2", what][0] for what in ("began", "built", "loaded"))
    first, first_used = found["2", "step"][0]
    phases = exits - last, began - exits, built - began, loaded - built, first - loaded
    return Moved(first - last, *phases, exits_used - last_used, first_used - _used_at_begin(found), *agents)


def _used_at_begin(found: dict[tuple[str, str], list[tuple[float, float]]]) -> float:
    return found["2", "began"][0][1]
