"""Time of simulating the Philly trace on one core, under FIFO, and agreement of the results with other simulators.

The slices are 1,000 jobs on 128 GPUs and 5,000 on 512 where only GPUs count, for which an exact counting FIFO and Tiresias'
simulator are known to agree. The whole trace runs on 56 nodes of 8 GPUs, on which it waits; wider jobs are gangs. The trace is
not part of the project: `EBB_PHILLY` names its file (see `sim/workloads/philly.py` for the columns). Without it, only the
small slice is simulated. Tiresias' simulator is not included, either; it also runs if `EBB_TIRESIAS` names its folder.
"""

import csv
import gzip
import os
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import tiresias
from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from benchmarks.simulations import Took, apart
from scheduler_service.sim.experiments.cases import Case, Nodes, Policy
from scheduler_service.sim.workloads import Philly
from scheduler_service.sim.workloads.assuming import Trials

BENCH = "sim_philly"
SLICE = Path(__file__).parents[1] / "tests" / "sim" / "data" / "philly_slice_1000.csv.gz"
FROM_S = 35 * 86_400
POWERS_OF_TWO = {"1", "2", "4", "8", "16", "32"}
TIRESIAS_S = 30.8
"""Seconds of Tiresias' simulator for the slice of 5,000 jobs when Ebb's targets were set, on another machine of two cores;
the next fastest took nearly three times as long."""


def counting_gpus(file: Path, **options: Any) -> Philly:
    """The trace for what counts GPUs alone, as other simulators do: every job is of one task and best-effort."""
    alone = {"trials": Trials(share=0), "grace_s": 0, "cpus_per_gpu": 0, "memory_gib_per_gpu": 0, "gang_of": None}
    return Philly.model_validate({"file": file, **alone, **options})


class Known(NamedTuple):
    """In seconds: mean completion and mean wait, to a tenth, and makespan."""

    completion: float
    wait: float
    makespan: float


SMALL, LARGE = Known(6197.5, 3034.1, 160677), Known(6384.4, 161.4, 2120239)


def run() -> list[Figure]:
    trace, simulator = named_trace(), tiresias.named()  # what was named wrongly is told before anything is measured
    took = apart(_case(counting_gpus(SLICE), Nodes(gpus=128)))
    _check(took, SMALL)
    figures = [figure(BENCH, "1,000 jobs on 128 GPUs", took.seconds, "s")]
    if trace is None:
        print("EBB_PHILLY names no file of the whole trace: its slice of 1,000 jobs is all there is")
        return figures
    with scratch() as folder:
        jobs = _slice(trace, 5000, folder / "slice.csv.gz")
        took = apart(_case(counting_gpus(jobs), Nodes(gpus=512)))
        _check(took, LARGE)
        beside = [] if simulator is None else _beside(simulator, took, jobs, 512, folder / "tiresias")
    whole = apart(_case(Philly(file=trace), Nodes(nodes=56, cpus=32, memory_gib=256, gpus=8)))
    return [
        *figures,
        figure(BENCH, "5,000 jobs on 512 GPUs", took.seconds, "s"),
        figure(BENCH, f"Tiresias' {TIRESIAS_S} s over that", TIRESIAS_S / took.seconds, "x", at_least=20),
        *beside,
        figure(BENCH, f"{whole.jobs:,} jobs on 448 GPUs", whole.seconds, "s", at_most=8),
        figure(BENCH, "simulated jobs a second", whole.jobs / whole.seconds, "/s", at_least=10_000),
        figure(BENCH, "mean wait there", whole.wait / 3600, "h"),
        figure(BENCH, "resident at most", whole.peak_mib, "MiB"),
    ]


def named_trace() -> Path | None:
    """The file that `EBB_PHILLY` names; None: it names none."""
    if "EBB_PHILLY" not in os.environ:
        return None
    file = Path(os.environ["EBB_PHILLY"]).absolute()
    if not file.is_file():
        raise FileNotFoundError(f"EBB_PHILLY names {file}, which is no file: name that of the trace, or leave it unset")
    return file


def _slice(trace: Path, jobs: int, file: Path) -> Path:
    """A file of the first so many jobs from the 36th day on that ask for a power of two, as other simulators were given it."""
    with gzip.open(trace, "rt") as lines, gzip.open(file, "wt") as made:
        rows = csv.DictReader(lines)
        kept = (row for row in rows if float(row["submit_s"]) >= FROM_S and row["num_gpus"] in POWERS_OF_TWO)
        slice_ = csv.DictWriter(made, rows.fieldnames or ())
        slice_.writeheader()
        slice_.writerows(islice(kept, jobs))
    return file


def _beside(simulator: Path, took: Took, jobs: Path, gpus: int, folder: Path) -> list[Figure]:
    """Tiresias' simulator on this machine: it is to come to the same."""
    theirs = tiresias.simulate(simulator, jobs, gpus, folder)
    _check(theirs, LARGE)
    return [
        figure(BENCH, "Tiresias' simulator, here and now", theirs.seconds, "s"),
        figure(BENCH, "its time over Ebb's", theirs.seconds / took.seconds, "x"),
    ]


def _case(workload: Philly, nodes: Nodes) -> Case:
    return Case(cluster=(nodes,), workload=workload, policy=Policy(name="fifo"))


def _check(took: Took | tiresias.Took, known: Known) -> None:
    found = Known(round(took.completion, 1), round(took.wait, 1), took.makespan)
    if found != known:
        raise RuntimeError(f"it gives {found}; known to be right is {known}")
