"""Cost of AlloX's exact matching: from scratch, and for one arrival into a solved queue (docs/matching.md).

The jobs are like those that AlloX's authors published: ten users, CPU times of 80 to 350 s, and lognormal speed-ups. All slots
are busy, each until a random time within the next 300 s, or all are idle. A solution includes the proof that no schedule is
better. The benchmark checks the proof again if the problem is small enough. Times are processor time of the only thread.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from time import thread_time_ns

import numpy as np

from benchmarks.figures import Figure, figure
from scheduler_service.policies.allox.matching.certificate import lower_bound
from scheduler_service.policies.allox.matching.problem import NOWHERE, Ints, Matching, Problem
from scheduler_service.policies.allox.matching.solve import solve

SPEED_UPS = (
    *((0.49, 0.45), (0.67, 0.51), (0.92, 0.56), (1.34, 0.70), (1.37, 0.65)),
    *((1.63, 0.81), (1.88, 0.77), (1.97, 0.83), (2.16, 0.88), (2.70, 0.74)),
)
"""Mean and deviation of the logarithm, by user."""
OLDER = (1.0, 1.6, 2.7)
"""How much longer a job takes on the other models of GPUs, on average."""
CASES = (
    (10, (50, 50), 2),
    (1_000, (5_000, 5_000), 20),
    (2_000, (500,) * 4, 60),
    (20_000, (2_500,) * 4, 1_500),
)
"""Jobs, slots of each kind, and the target in ms if all slots are busy."""
QUEUES = ((2_000, (10, 10)), (10_000, (20, 20)))
"""Queues that are long relative to the number of slots."""
CHECKED = 50_000_000
"""Jobs times positions up to which the proof is checked again."""


def problem(jobs: int, slots: tuple[int, ...], busy: bool, seed: int = 1, tail: float = 0.0) -> Problem:
    """The first kind are CPUs, the others models of GPUs. `tail` spreads the sizes of jobs (a lognormal factor's deviation)."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, len(SPEED_UPS), jobs)
    cpu = np.maximum(rng.normal(80 + 30 * user, 20), 1) * rng.lognormal(0, tail, jobs)
    gpu = cpu / rng.lognormal(*np.array(SPEED_UPS)[user].T)
    models = [gpu * older * rng.lognormal(0, 0.2 * (older > 1), jobs) for older in OLDER[: len(slots) - 1]]
    times = np.maximum(np.column_stack((cpu, *models)) * 1e6, 1).astype(np.int64)
    free_at = tuple(rng.integers(0, 300_000_000 if busy else 1, count) for count in slots)
    return Problem(times, free_at, -np.arange(jobs, 0, -1))


def measure(work: Callable[[], Matching], times: int) -> tuple[float, Matching]:
    """The median in ms, and the result, after one time that does not count."""
    matching = work()
    took = []
    for _ in range(times):
        begin = thread_time_ns()
        work()
        took.append((thread_time_ns() - begin) / 1e6)
    return sorted(took)[times // 2], matching


def fresh(jobs: int, slots: tuple[int, ...], busy: bool, tail: float = 0.0, times: int = 0) -> float:
    of = problem(jobs, slots, busy, tail=tail)
    took, matching = measure(lambda: solve(of), times or max(5, 5_000 // jobs))
    positions = sum(map(len, matching.prices))
    if jobs * positions <= CHECKED and lower_bound(of, matching.prices) != matching.cost:
        raise AssertionError(
            f"{jobs} jobs on {slots}: a cost of {matching.cost}, a bound of {lower_bound(of, matching.prices)}"
        )
    print(f"{jobs:,} jobs on {sum(slots):,} slots: at most {max(map(len, matching.prices)) - 1} on one; {took:.1f} ms")
    return took


def arrival(jobs: int, slots: tuple[int, ...]) -> float:
    """The median over jobs of what it costs to bring one into the matching of all others."""
    of = problem(jobs, slots, busy=True)
    whole = solve(of)
    took = []
    for job in range(0, jobs, jobs // 20):
        others = Problem(np.delete(of.times, job, 0), of.free_at, np.delete(of.arrived, job))
        old = solve(others, (np.delete(whole.kind, job), np.delete(whole.position, job)))
        before: tuple[Ints, Ints] = np.insert(old.kind, job, NOWHERE), np.insert(old.position, job, NOWHERE)
        time, matching = measure(partial(solve, of, before), 3)
        took.append(time)
        if matching.cost != whole.cost:
            raise AssertionError(f"job {job} entered the queue at a cost of {matching.cost} in place of {whole.cost}")
    return sorted(took)[len(took) // 2]


def loading() -> tuple[float, float]:
    """Measure the cost of loading the solver after NumPy: ms and MiB, the least of five."""
    code = (
        "import numpy, time, sys; rss = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096 / 2**20\n"
        "memory, begin = rss(), time.perf_counter()\n"
        "import scheduler_service.policies.allox.matching.solve\n"
        "print((time.perf_counter() - begin) * 1000, rss() - memory)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(5)]
    measured = [tuple(map(float, run.stdout.split())) for run in runs]
    return min(ms for ms, _ in measured), min(mib for _, mib in measured)


def run() -> list[Figure]:
    figures = []
    for jobs, slots, target in CASES:
        name = f"{jobs:,} jobs, {sum(slots):,} slots of {len(slots)} kinds"
        figures.append(figure("matching", f"{name}, all busy", fresh(jobs, slots, True), "ms", at_most=target))
        figures.append(figure("matching", f"{name}, all idle", fresh(jobs, slots, False), "ms"))
    for jobs, slots in ((2_000, (500,) * 4), (20_000, (2_500,) * 4)):
        name = f"{jobs:,} jobs of very different sizes, {sum(slots):,} slots, all busy"
        figures.append(figure("matching", name, fresh(jobs, slots, True, tail=1.5), "ms"))
    for jobs, slots in QUEUES:
        name = f"{jobs:,} jobs, {sum(slots):,} slots, all busy"
        figures.append(figure("matching", name, fresh(jobs, slots, True, times=3), "ms"))
        figures.append(figure("matching", f"{name}: one arrival", arrival(jobs, slots), "ms"))
    whole, one = fresh(2_000, (500,) * 4, True), arrival(2_000, (500,) * 4)
    figures.append(figure("matching", "2,000 jobs, 2,000 slots: one arrival, of a fresh solution", one / whole, "", at_most=1))
    figures.append(figure("matching", "2,000 jobs, 2,000 slots: one arrival", one, "ms"))
    ms, mib = loading()
    figures.append(figure("matching", "loading the solver", ms, "ms"))
    figures.append(figure("matching", "memory of the solver's code", mib, "MiB"))
    return figures
