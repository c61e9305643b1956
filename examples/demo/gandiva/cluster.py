"""The cluster of the show: nodes of two devices, each of which is one CPU of this machine, under the policy `gandiva`."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from client_sdk import Client, Job, JobEvent, JobState, NodeState, TaskGroup
from examples.cluster import Cluster
from examples.demo.gandiva.rates import Step, read_steps
from examples.demo.stage import Failed, why
from examples.demo.stopping import Stopping

T = TypeVar("T")

PERIOD = 4.0
"""Seconds in which each of two jobs on a device has its turn."""
GAIN = 75
"""Percent by which packing has to be better. Two jobs that wait can gain 100, and two that compute gain nothing, unless other
processes want their CPU: then two jobs get more of it than one."""
SETTINGS = {
    "period": PERIOD,
    "packing_gain": GAIN,
    "probe_periods": 15,
    "move_pause": 5,
    "defragment_free": 50,
    "grow_after": 3,
}
STEP_WINDOW = 2
PATIENCE = 120.0
"""Seconds after which something that is awaited will not come any more."""


class Site:
    """The cluster, and the jobs of the show by their names. Each node has a device for each of the CPUs."""

    def __init__(self, folder: Path, cpus: Sequence[int], stopping: Stopping, client: Client, cluster: Cluster) -> None:
        self.client = client
        self.jobs: dict[str, int] = {}
        self._folder = folder
        self._cpus = cpus
        self._stopping = stopping
        self._cluster = cluster

    # ---- nodes and jobs ------------------------------------------------------------------------------------------------

    def start_node(self, name: str) -> None:
        sets = ";".join(map(str, self._cpus))
        checkpoints = str(self._folder / name / "checkpoints")  # of its own: a job that moves takes its checkpoint along
        flags = ("--checkpoints", checkpoints, "--step-window", str(STEP_WINDOW), "--log-level", "warning")
        settings = self._folder / f"{name}.yaml"
        settings.write_text(f'cpus: "{sets}"\n')
        self._cluster.start_agent(name, "pcie-2", "--config", str(settings), *flags)
        self.until(lambda: any(n.name == name and n.state is NodeState.UP for n in self.client.nodes()), f"node {name}")

    def submit(self, name: str, kind: str, parts: int = 1, most: int = 0) -> int:
        """A job on one device. `most`: it is elastic, with so many tasks at most."""
        command = [
            sys.executable,
            "-m",
            "examples.demo.gandiva.work",
            kind,
            "--log",
            str(self._log(name)),
            "--end",
            str(self._end(name)),
        ]
        command += ["--parts", str(parts), *(["--elastic"] if most else [])]
        environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
        if most:
            tasks = [TaskGroup(1, devices=1, cpus=1, memory=64)]
            job = self.client.submit(command, name=name, env=environment, grace=30, tasks=tasks, min_tasks=1, max_tasks=most)
        else:
            job = self.client.submit(command, name=name, env=environment, grace=30, devices=1, cpus=1, memory=64)
        self.jobs[name] = job.id
        return job.id

    def end(self, *names: str) -> None:
        """These jobs have done enough. Returns when they have succeeded."""
        for name in names:
            self._end(name).touch()
        for name in names:
            self.until(lambda name=name: self.job(name).state is JobState.SUCCEEDED, f"{name} to end")  # type: ignore[misc]

    def job(self, name: str) -> Job:
        return self.client.get(self.jobs[name])

    def steps(self, name: str) -> list[Step]:
        return read_steps(self._log(name))

    def runs(self, *names: str) -> None:
        """Returns when these jobs do steps."""
        for name in names:
            self.until(lambda name=name: bool(self.steps(name)), f"{name} to do a step")  # type: ignore[misc]

    def told(self, name: str, *texts: str) -> JobEvent | None:
        """The last line of the job's story that has one of these texts in it."""
        lines = [line for line in self.client.story(self.jobs[name]) if any(text in line.text for text in texts)]
        return lines[-1] if lines else None

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.txt"

    def _end(self, name: str) -> Path:
        return self._folder / f"{name}.end"

    # ---- waiting -------------------------------------------------------------------------------------------------------

    def until(self, what: Callable[[], T | None], awaited: str) -> T:
        """Returns what is awaited once it is there. Raises Failed if it does not come, a process ends or a job fails."""
        limit = time.monotonic() + PATIENCE
        while not (found := what()):
            self._stopping.pause(0.1)
            if time.monotonic() > limit:
                raise Failed(f"waited {PATIENCE:.0f} s for {awaited}\n{self._stories()}")
            for name, process in self._cluster.processes.items():
                if process.poll() is not None:
                    raise Failed(f"{name} ended with status {process.returncode}:\n{self._cluster.tail(name)}")
            for job in self.client.list(states=[JobState.FAILED, JobState.CANCELLED]):
                raise Failed(why(job))
        return found

    def _stories(self) -> str:
        """Return the events of all jobs, to diagnose a failure."""
        lines = (line for job in self.jobs.values() for line in self.client.story(job))
        return "\n".join(f"job {line.job_id}: {line.kind.name} {line.text}".rstrip() for line in lines)


def configuration(folder: Path) -> Path:
    """Writes the scheduler's settings."""
    file = folder / "scheduler.yaml"
    settings = ", ".join(f"{name}: {value:g}" for name, value in SETTINGS.items())
    file.write_text(f"policy: gandiva\npolicy_settings: {{{settings}}}\n")
    return file
