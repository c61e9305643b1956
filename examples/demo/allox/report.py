"""Report of the measurements: the estimates, each policy's average completion time, and the device of each job."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.demo.allox.estimates import LONGEST, MEASURED, SHORTEST, Role
from examples.demo.allox.machine import Device
from scheduler_service.policies.allox.matching.problem import Problem
from scheduler_service.policies.allox.matching.solve import solve

_US = 1e6
BUSY = 0.1
"""If other processes take more than this of the jobs' time, the figures tell more of them than of the policies."""


@dataclass(frozen=True)
class Run:
    """A job that has run on a device: seconds since all jobs were ready."""

    role: Role
    device: str
    began: float
    ended: float
    waited: float = 0.0
    """Seconds in which another process had its CPU."""

    @property
    def took(self) -> float:
        return self.ended - self.began

    @property
    def estimate(self) -> float:
        return self.role.estimates[self.device]


@dataclass(frozen=True)
class Outcome:
    """The runs of the jobs under one policy, in the order in which they started."""

    policy: str
    runs: tuple[Run, ...]

    @property
    def average(self) -> float:
        """The average completion time, in seconds."""
        return fmean(run.ended for run in self.runs)

    @property
    def makespan(self) -> float:
        return max(run.ended for run in self.runs)

    @property
    def lost(self) -> float:
        """The share of the time of all jobs in which another process had the CPU."""
        return sum(run.waited for run in self.runs) / sum(run.took for run in self.runs)

    def on(self, device: str) -> list[Run]:
        return [run for run in self.runs if run.device == device]

    @property
    def expected(self) -> float:
        """The average if each device had served the same jobs in the same order, and each had taken as long as estimated."""
        ends = []
        for device in dict.fromkeys(run.device for run in self.runs):
            ends += np.cumsum([run.estimate for run in self.on(device)]).tolist()
        return fmean(ends)


def least_average(roles: Sequence[Role], devices: Sequence[Device]) -> float:
    """Return the least average of all schedules without preemption, if the estimates are right, by exact matching
    (docs/matching.md)."""
    times = np.array([[round(role.estimates[device.name] * _US) for device in devices] for role in roles], np.int64)
    idle = tuple(np.zeros(1, np.int64) for _ in devices)
    return solve(Problem(times, idle, np.zeros(len(roles), np.int64))).cost / _US / len(roles)


def tell_devices(devices: Sequence[Device], console: Console) -> None:
    for device in devices:
        console.print(f"Device {device}.", highlight=False, soft_wrap=True)
    if len(devices[0].cpus) == 1:
        console.print(
            "This process may use 2 CPUs, so both devices have one. To make them differ, the narrow one\n"
            "stands for an older processor. With more CPUs, they differ by threads alone.",
            highlight=False,
            soft_wrap=True,
        )


def tell_estimates(roles: Sequence[Role], devices: Sequence[Device], seed: int, console: Console) -> None:
    _heading(f"{len(roles)} jobs, in the order of their submission, and how long they should take", console)
    table = _table("JOB", "STEPS>", *(f"ON {device.name.upper()}>" for device in devices), "SPEED-UP>")
    for role in roles:
        times = [role.estimates[device.name] for device in devices]
        table.add_row(role.name, str(role.steps), *(f"{time:.2f} s" for time in times), f"{times[1] / times[0]:.2f}")
    console.print(table)
    _note(f"Each kind of work was measured for {MEASURED:g} s on both devices. Each job has two configurations,", console)
    _note("the wide device first, with these times as estimates. The lengths on the faster device,", console)
    _note(f"{SHORTEST:g} to {LONGEST:g} s, and the order are drawn at random (seed {seed}; another: ARGS='--seed N').", console)


def report(
    roles: Sequence[Role], devices: Sequence[Device], outcomes: Sequence[Outcome], seconds: float, console: Console
) -> None:
    """Prints everything. The last outcome, that of allox, is compared with the others."""
    _jobs(roles, outcomes, console)
    _places(devices, outcomes, console)
    _averages(roles, devices, outcomes, console)
    _verdict(outcomes, seconds, console)


def _jobs(roles: Sequence[Role], outcomes: Sequence[Outcome], console: Console) -> None:
    _heading("How long each job took, and by its estimate for the same device", console)
    table = _table("JOB", *(name for outcome in outcomes for name in (outcome.policy.upper(), "TOOK>", "EST.>")))
    found = {(outcome.policy, run.role.name): run for outcome in outcomes for run in outcome.runs}
    for role in roles:
        runs = [found[outcome.policy, role.name] for outcome in outcomes]
        table.add_row(role.name, *(cell for run in runs for cell in (run.device, f"{run.took:.2f}", f"{run.estimate:.2f}")))
    console.print(table)
    errors = [abs(run.took / run.estimate - 1) for run in found.values()]
    _note(f"In seconds. Estimates were off by {fmean(errors):.0%} on average, and by {max(errors):.0%} at most.", console)


def _places(devices: Sequence[Device], outcomes: Sequence[Outcome], console: Console) -> None:
    _heading("Which jobs each device ran, in this order", console)
    table = _table("POLICY", "DEVICE", "JOBS")
    for outcome in outcomes:
        for device in devices:
            table.add_row(outcome.policy, device.name, " ".join(run.role.name for run in outcome.on(device.name)))
    console.print(table)


def _averages(roles: Sequence[Role], devices: Sequence[Device], outcomes: Sequence[Outcome], console: Console) -> None:
    _heading("Average completion time, from the moment at which all jobs were ready", console)
    table = _table("POLICY", "MEASURED>", "BY ESTIMATES>", "LAST JOB ENDED>", "LOST TO OTHERS>")
    for outcome in outcomes:
        times = outcome.average, outcome.expected, outcome.makespan
        table.add_row(outcome.policy, *(f"{time:.2f} s" for time in times), f"{outcome.lost:.0%}")
    console.print(table)
    least = least_average(roles, devices)
    _note("LOST TO OTHERS: how much of the jobs' time other processes had their CPUs.", console)
    _note(f"By the estimates, no schedule has a lower average than {least:.2f} s (exact matching).", console)
    _note("fifo starts the first job of the queue in its first configuration that has room.", console)
    _note("shortest starts the job that takes least, of all jobs and configurations that have room.", console)
    _note("allox matches jobs with devices, and may leave a device idle for jobs that end sooner elsewhere.", console)


def _verdict(outcomes: Sequence[Outcome], seconds: float, console: Console) -> None:
    *others, allox = outcomes
    compared = ", and ".join(f"{_difference(allox.average, other.average)} {other.policy}" for other in others)
    console.print(f"\nUnder allox the average completion time was {compared}.", style="bold", highlight=False, soft_wrap=True)
    if any(outcome.lost > BUSY for outcome in outcomes):
        console.print(
            "Other processes kept this machine busy, and not equally under each policy. The times by the estimates can be\n"
            "compared nevertheless; to compare those that were measured, run this again when the machine is idle.",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"every job ran on the CPUs of its device; {seconds:.1f} s", style="bold green", highlight=False)


def _difference(mine: float, other: float) -> str:
    change = mine / other - 1
    return f"{abs(change):.0%} {'lower' if change < 0 else 'higher'} than under"


def _heading(text: str, console: Console) -> None:
    console.print(f"\n{text}", style="bold", highlight=False)


def _note(text: str, console: Console) -> None:
    console.print(text, style="dim", highlight=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    """Columns whose names end with > are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    return table
