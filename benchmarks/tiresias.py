"""Tiresias' simulator (github.com/SymbioticLab/Tiresias) on the same jobs as Ebb's, under FIFO that counts GPUs alone.

It is not part of the project: `EBB_TIRESIAS` names its folder `simulator`. It was written for Python 2, and runs on 3 with
one name more; it imports a module that needs CPLEX, which FIFO does not use. Both are supplied here, and its files stay as
they are.
"""

import csv
import gzip
import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple

GPUS_PER_NODE = 8
_SUPPLIED = {"sitecustomize.py": "import sys\nsys.maxint = sys.maxsize\n", "lp.py": ""}
_PROGRAM = "run_sim.py"
_BEGIN = f"import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_path({_PROGRAM!r}, run_name='__main__')"
"""The simulator's own folder comes last, so that what is supplied is found before."""
_COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")


class Took(NamedTuple):
    """Times are in seconds."""

    seconds: float
    """The total processor time, including Python's start."""
    completion: float
    wait: float
    makespan: float


def named() -> Path | None:
    """Return the folder in `EBB_TIRESIAS`; None if it is not set. Raises FileNotFoundError if the simulator is not there."""
    if "EBB_TIRESIAS" not in os.environ:
        return None
    simulator = Path(os.environ["EBB_TIRESIAS"]).absolute()
    if not (simulator / _PROGRAM).is_file():
        there = f"EBB_TIRESIAS names {simulator}, in which there is no {_PROGRAM}"
        raise FileNotFoundError(f"{there}: name the folder `simulator` of Tiresias, or leave it unset")
    return simulator


def simulate(simulator: Path, trace: Path, gpus: int, folder: Path) -> Took:
    """Simulates the jobs of a file in the Philly trace's form. Raises CalledProcessError where the simulator fails."""
    folder.mkdir()
    for name, text in _SUPPLIED.items():
        (folder / name).write_text(text)
    _write_jobs(trace, folder / "jobs.csv")
    nodes = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"
    (folder / "nodes.csv").write_text(f"{nodes}1,{gpus // GPUS_PER_NODE},{GPUS_PER_NODE},128,1024")
    options = [f"--cluster_spec={folder}/nodes.csv", f"--trace_file={folder}/jobs.csv", f"--log_path={folder}/log"]
    command = [sys.executable, "-c", _BEGIN, str(simulator), "--scheme=count", "--schedule=fifo", *options]
    before = _of_children()
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run(command, cwd=simulator, env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds = _of_children() - before
    with (folder / "log" / "job.csv").open() as lines:
        jobs = list(csv.DictReader(lines))

    def mean(column: str) -> float:
        return sum(float(job[column]) for job in jobs) / len(jobs)

    return Took(seconds, mean("JCT"), mean("pending_time"), max(float(job["end_time"]) for job in jobs))


def _write_jobs(trace: Path, file: Path) -> None:
    """Its times are whole seconds from the first job on."""
    with gzip.open(trace, "rt") as lines, file.open("w") as made:
        jobs = csv.DictReader(lines)
        write = csv.writer(made)
        write.writerow(_COLUMNS)
        first = None
        for number, job in enumerate(jobs):
            submit = float(job["submit_s"])
            first = submit if first is None else first
            duration = max(1, round(float(job["duration_s"])))
            write.writerow((number, job["num_gpus"], round(submit - first), 1, "resnet50", duration, 1))


def _of_children() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
