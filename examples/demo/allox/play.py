"""The same jobs under each policy, one policy after the other, on the same two devices; each time with a new scheduler.

A job that does nothing holds up all others until they are submitted. When it ends, all of them are ready at once, and the time
of the comparison begins.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Console

from client_sdk import Client, Configuration, Dependency, Job, JobSpec, JobState, NodeRequest, NodeState, Resources
from examples.cluster import Cluster, Process, start_module
from examples.demo.allox.estimates import Role, drawn, measure
from examples.demo.allox.machine import Device, confined, devices
from examples.demo.allox.report import Outcome, Run, report, tell_devices, tell_estimates
from examples.demo.stage import Failed, why
from examples.demo.stopping import Stopping

POLICIES = ("fifo", "shortest", "allox")
PROFILE, CORES = "cpu-20c", 20
"""The profile and cores of each node. A job requests all cores, so that it has the CPU set of the node to itself."""
PATIENCE = 240.0
"""Seconds after which waiting for something has failed."""
_NODE = Resources(cpus=CORES, memory_mib=1024)


def play(folder: Path, stopping: Stopping, console: Console, seed: int) -> bool:
    """Runs the show in this folder, and returns True. Its processes have ended when it returns or raises. Raises Failed if
    something did not hold."""
    began = time.monotonic()
    both = devices(os.sched_getaffinity(0))
    tell_devices(both, console)
    roles = drawn(measure(both, folder / "measured", stopping), seed)
    tell_estimates(roles, both, seed, console)
    outcomes = [Show(folder / policy, policy, both, stopping, console).serve(roles) for policy in POLICIES]
    report(roles, both, outcomes, time.monotonic() - began, console)
    return True


def spec(role: Role, both: Sequence[Device], folder: Path, after: int) -> JobSpec:
    """A job with a configuration for each device, the wide one first."""
    first, *others = (
        Configuration(
            resources=_NODE,
            nodes=NodeRequest(labels={"device": device.name}),
            environment=device.environment,
            estimate=timedelta(seconds=role.estimates[device.name]),
        )
        for device in both
    )
    return JobSpec(
        name=role.name,
        command=role.command(_result(folder, role)),
        resources=first.resources,
        nodes=first.nodes,
        environment=first.environment,
        estimate=first.estimate,
        alternatives=tuple(others),
        dependencies=(Dependency(after),),
        working_directory=str(folder),
    )


def _result(folder: Path, role: Role) -> Path:
    return folder / f"{role.name}.json"


def start_either(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Starts an agent, or the scheduler that knows all policies of the show."""
    module, *others = arguments
    here = {"scheduler_service": "examples.demo.allox.scheduler"}
    return start_module([here.get(module, module), *others], log, environment)


class Show:
    """One policy."""

    def __init__(self, folder: Path, policy: str, both: Sequence[Device], stopping: Stopping, console: Console) -> None:
        self._folder = folder
        self._policy = policy
        self._devices = both
        self._stopping = stopping
        self._console = console
        flags = ["--policy", policy, "--log-level", "WARNING"]
        self._cluster = Cluster(folder / "ebb", flags, pause=stopping.pause, start=start_either)

    def serve(self, roles: Sequence[Role]) -> Outcome:
        self._console.print(f"\n{self._policy}", style="bold", highlight=False)
        with self._cluster as cluster:
            cluster.start_scheduler()
            for device in self._devices:
                with confined(device.cpus):
                    cluster.start_agent(device.name, PROFILE, "--labels", f"device={device.name}", "--log-level", "warning")
            with Client(cluster.address) as client:
                self._until_up(client)
                return self._run(client, roles)

    def _until_up(self, client: Client) -> None:
        limit = time.monotonic() + PATIENCE
        while sum(node.state is NodeState.UP for node in client.nodes()) < len(self._devices):
            self._pause(limit, "both nodes to come up")

    def _run(self, client: Client, roles: Sequence[Role]) -> Outcome:
        work, gate = self._folder / "work", self._folder / "gate"
        work.mkdir()
        wait = ("sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', str(gate))
        first = client.submit_spec(JobSpec(name="gate", command=wait, resources=_NODE)).id
        jobs = {client.submit_spec(spec(role, self._devices, work, first)).id: role for role in roles}
        gate.touch()
        ended = self._until_ended(client, first, len(jobs))
        ready = _time(ended[first].end_time)
        runs = [_judged(role, ended[job], ready, self._devices, work) for job, role in jobs.items()]
        return Outcome(self._policy, tuple(sorted(runs, key=lambda run: run.began)))

    def _until_ended(self, client: Client, first: int, count: int) -> dict[int, Job]:
        """All jobs, as they ended. Tells of each as it ends."""
        limit, ended = time.monotonic() + PATIENCE, dict[int, Job]()
        while len(ended) <= count:
            self._pause(limit, f"{count + 1 - len(ended)} jobs to end")
            known = sorted((job for job in client.list() if job.ended), key=lambda job: _time(job.end_time))
            for job in known:
                if job.state is not JobState.SUCCEEDED:
                    raise Failed(why(job))
                if job.id not in ended and job.id != first:
                    self._tell(job, _time(ended[first].end_time))
                ended[job.id] = job
        return ended

    def _tell(self, job: Job, ready: datetime) -> None:
        took = _seconds(_time(job.start_time), _time(job.end_time))
        at = _seconds(ready, _time(job.end_time))
        line = f"{at:5.1f} s  {job.spec.name} ended on {job.node}, where it took {took:.1f} s"
        self._console.print(line, highlight=False, soft_wrap=True)

    def _pause(self, limit: float, what: str) -> None:
        """Raises Failed when it takes too long, or when a process of the cluster has ended."""
        self._stopping.pause(0.2)
        if time.monotonic() > limit:
            raise Failed(f"{self._policy}: waited {PATIENCE:.0f} s for {what}")
        for name, process in self._cluster.processes.items():
            if process.poll() is not None:
                raise Failed(f"{name} ended with status {process.returncode}:\n{self._cluster.tail(name)}")


def _judged(role: Role, job: Job, ready: datetime, both: Sequence[Device], work: Path) -> Run:
    """Raises Failed if the job did not run where its configuration says."""
    device = both[job.configuration]
    result = json.loads(_result(work, role).read_text())
    cpus = result["cpus"]
    if job.node != device.name or set(cpus) != device.cpus:
        raise Failed(
            f"job {job.id} {role.name} ran on {job.node} with the CPUs {cpus}; its configuration is that of {device.name}, "
            f"with the CPUs {sorted(device.cpus)}"
        )
    began, ended = _time(job.start_time), _time(job.end_time)
    return Run(role, device.name, _seconds(ready, began), _seconds(ready, ended), result["waited"])


def _time(moment: datetime | None) -> datetime:
    assert moment is not None  # the scheduler notes when a run begins and ends
    return moment


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()
