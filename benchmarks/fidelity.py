"""How near a simulation comes to the live service: 200 jobs of about a second on four agents, with trials that preempt.

Each workload runs live twice: the second time shows how much differs from one time to the next by itself. Then it is
simulated, at the submit times of its first live run and with the delays that *another* workload's live run has shown, over
and over with different draws. Compared are the mean wait, the order in which jobs start, and which of them are preempted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev
from typing import NamedTuple

from benchmarks.figures import Figure, figure
from benchmarks.measured_delays import times
from benchmarks.scratch import scratch
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.node_delays import Delays
from scheduler_service.sim.workloads.arriving import Timed
from scheduler_service.sim.world import Site, World
from tests import harness
from tests.e2e import paced

BENCH = "fidelity"
SEEDS = (1, 2, 3)
DRAWS = 20
"""How often each workload is simulated."""


class Preempted(NamedTuple):
    """How many jobs."""

    live: int
    other: int
    both: int

    @property
    def alike(self) -> float:
        """The share of those preempted in either that are preempted in both."""
        either = self.live + self.other - self.both
        return self.both / either if either else 1.0


@dataclass(frozen=True, slots=True)
class Compared:
    """Another history of the same jobs, compared with the live one."""

    wait: float
    """The mean wait, divided by the live one."""
    reordered: float
    """The share of pairs of jobs that started in another order."""
    preempted: Preempted


def run() -> list[Figure]:
    first, again = [[live(seed) for seed in SEEDS] for _ in range(2)]
    figures: list[Figure] = []
    waits = []
    for number, seed in enumerate(SEEDS):
        other = times(first[number - 1]).delays()
        histories = [simulated(first[number], other, draw) for draw in range(1, DRAWS + 1)]
        figures += _figures(seed, first[number], again[number], histories)
        waits.append(fmean(map(mean_wait, histories)))
    live_wait, live_again, simulated_wait = fmean(map(mean_wait, first)), fmean(map(mean_wait, again)), fmean(waits)
    return [
        *figures,
        figure(BENCH, "mean wait of all, live again: off by", _off(live_again, live_wait), "%"),
        figure(BENCH, "mean wait of all, simulated: off by", _off(simulated_wait, live_wait), "%", at_most=5),
    ]


def _off(value: float, right: float) -> float:
    """Return the difference in percent."""
    return 100 * abs(value / right - 1)


def live(seed: int) -> list[Life]:
    """The workload on a cluster of its own."""
    jobs = paced.workload(seed)
    with scratch() as folder, harness.Site(folder / "site", nodes=paced.NODES) as site:
        paced.play(site, jobs)
        return paced.lives(site.database, jobs)


def simulated(lived: Sequence[Life], measured: Delays, seed: int) -> list[Life]:
    """The same jobs in the simulator, in the same order, submitted at the same times."""
    site = Site(paced.nodes(), stages("fitgpp", paced.POLICY).policy, delays=measured, seed=seed)
    world = World(site, Timed(sorted((life.job for life in lived), key=lambda job: job.submit_us)))
    world.run()
    return list(world.lives.values())


def compared(lived: Sequence[Life], other: Sequence[Life]) -> Compared:
    pairs = list(combinations(zip(_starts(lived), _starts(other), strict=True), 2))
    reordered = sum((a - b) * (c - d) < 0 for (a, c), (b, d) in pairs)
    ours, theirs = _preempted(lived), _preempted(other)
    return Compared(
        mean_wait(other) / mean_wait(lived),
        reordered / len(pairs),
        Preempted(len(ours), len(theirs), len(ours & theirs)),
    )


def _starts(lives: Iterable[Life]) -> list[int]:
    starts = [life.start_us() for life in lives]
    return [at for at in starts if at is not None]


def _preempted(lives: Iterable[Life]) -> set[int]:
    return {life.id for life in lives if any(launch.signalled_us is not None for launch in life.launches)}


def mean_wait(lives: Iterable[Life]) -> float:
    return fmean(life.wait_us() for life in lives)


def _figures(seed: int, lived: Sequence[Life], again: Sequence[Life], histories: Sequence[Sequence[Life]]) -> list[Figure]:
    def row(metric: str, value: float, unit: str) -> Figure:
        return figure(BENCH, f"workload {seed}: {metric}", value, unit)

    simulations = [compared(lived, history) for history in histories]
    repeated = compared(lived, again)
    waits = [each.wait for each in simulations]
    return [
        row("mean wait, live", mean_wait(lived) / SECOND, "s"),
        row("mean wait, live again: off by", _off(repeated.wait, 1), "%"),
        row("mean wait, simulated: off by", _off(fmean(waits), 1), "%"),
        row("mean wait, one simulation from the next (standard deviation)", 100 * pstdev(waits) / fmean(waits), "%"),
        row("pairs that began in another order, live again", 100 * repeated.reordered, "%"),
        row("pairs that began in another order, simulated", 100 * fmean(each.reordered for each in simulations), "%"),
        row("preempted, live", repeated.preempted.live, "jobs"),
        row("preempted, live again", repeated.preempted.other, "jobs"),
        row("preempted, simulated", fmean(each.preempted.other for each in simulations), "jobs"),
        row("preempted in both of either, live again", 100 * repeated.preempted.alike, "%"),
        row("preempted in both of either, simulated", 100 * fmean(each.preempted.alike for each in simulations), "%"),
    ]
