"""HiveD's measures, against what a plain count over every moment gives."""

import math
from collections import Counter
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from reproduction.hived import measures as m
from scheduler_service.sim.experiments.history import Floats, History, Steps

END = 60
"""All times are before it."""
NODES = 5


class Run(NamedTuple):
    nodes: list[int]
    placed: int
    ended: int
    signalled: int | None = None
    why: str = ""
    guaranteed: int | None = 0
    before: tuple[int, ...] = ()
    """From when to when it was guaranteed, and then was not; in pairs."""


class Job(NamedTuple):
    vc: str
    gpus: int
    submit: int
    runs: list[Run]


def names(values: list[str]) -> Any:
    return pa.array(values).dictionary_encode()


def tables(jobs: list[Job], guaranteed: bool = False) -> tuple[Any, Any]:
    """As the simulator makes them, with what the measures look at."""
    count = len(jobs)
    starts = [job.runs[0].placed if job.runs else None for job in jobs]
    ends = [job.runs[-1].ended if job.runs else None for job in jobs]
    one = {name: pa.array([0] * count) for name in ("cpu_milli", "memory_mib", "lost_us", "done_us", "preemptions")}
    of_jobs = {
        **one,
        "job": pa.array(range(1, count + 1)),
        "gpus": pa.array([job.gpus for job in jobs]),
        "submit_us": pa.array([job.submit for job in jobs]),
        "work_us": pa.array([1] * count),
        "start_us": pa.array(starts, pa.int64()),
        "end_us": pa.array(ends, pa.int64()),
        **{name: names([job.vc for job in jobs]) for name in ("vc", "user", "class")},
    }
    flat = [(number, run) for number, job in enumerate(jobs, 1) for run in job.runs]
    of_runs = {
        "job": pa.array([number for number, _ in flat], pa.int64()),
        "nodes": pa.array([run.nodes for _, run in flat], pa.list_(pa.int32())),
        "placed_us": pa.array([run.placed for _, run in flat], pa.int64()),
        "began_us": pa.array([run.placed for _, run in flat], pa.int64()),
        "works_us": pa.array([run.placed for _, run in flat], pa.int64()),
        "lost_us": pa.nulls(len(flat), pa.int64()),
        "signalled_us": pa.array([run.signalled for _, run in flat], pa.int64()),
        "ended_us": pa.array([run.ended for _, run in flat], pa.int64()),
        "why": names([run.why for _, run in flat]),
    }
    if guaranteed:
        of_runs["guaranteed_us"] = pa.array([run.guaranteed for _, run in flat], pa.int64())
        of_runs["guaranteed_before_us"] = pa.array([run.before for _, run in flat], pa.list_(pa.int64()))
    return pa.table(of_jobs), pa.table(of_runs)


def drawn(rng: Random) -> list[Job]:
    jobs = []
    for submit in sorted(rng.sample(range(END // 2), rng.randint(1, 12))):
        tasks = rng.choice((1, 1, 1, 2))
        gpus = 8 * tasks if tasks > 1 else rng.choice((1, 2, 4, 8))
        runs, at = [], submit
        for _ in range(rng.choice((1, 1, 2))):
            placed = at + rng.randint(0, 5)
            at = placed + rng.randint(0, 12)
            signalled = rng.choice((None, at))
            before = tuple(sorted(rng.sample(range(placed, at), 2 * rng.randint(0, 2)))) if at - placed > 4 else ()
            since = rng.choice((None, rng.randint(before[-1], END))) if before else guaranteed_at(rng)
            runs.append(
                Run(
                    rng.sample(range(1, NODES + 1), tasks),
                    placed,
                    at,
                    signalled,
                    rng.choice(("", "reclaimed")),
                    since,
                    before,
                )
            )
        jobs.append(Job(rng.choice("ab"), gpus, submit, runs))
    return jobs


def guaranteed_at(rng: Random) -> int | None:
    return rng.choice((None, 0, rng.randrange(END)))


def tasks_at(jobs: list[Job], at: int, regular: bool = True) -> list[tuple[str, int, int]]:
    """(VC, node, GPUs) of the tasks that run in the moment after `at`."""
    return [
        (job.vc, node, job.gpus // len(run.nodes))
        for job in jobs
        for run in job.runs
        if run.placed <= at < run.ended and (not regular or is_regular(run, at))
        for node in run.nodes
    ]


def is_regular(run: Run, at: int) -> bool:
    spells = zip(run.before[::2], run.before[1::2], strict=True)
    return (run.guaranteed is not None and run.guaranteed <= at) or any(since <= at < until for since, until in spells)


def history(jobs: list[Job], guaranteed: bool = False) -> tuple[History, Any, Any]:
    of_jobs, of_runs = tables(jobs, guaranteed)
    return m.history_of((of_jobs, of_runs), NODES), of_jobs, of_runs


def moments(steps: Steps) -> list[float]:
    return steps.means(np.arange(END + 1, dtype=np.float64)).tolist()


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("regular", [True, False])
def test_use_and_fragmentation_at_every_moment(seed: int, regular: bool) -> None:
    jobs = drawn(Random(seed))
    h, _, runs = history(jobs, guaranteed=regular)
    uses = m.uses(h, runs)
    tasks = [tasks_at(jobs, at, regular) for at in range(END)]
    assert moments(m.gpus_in_use(uses)) == [sum(gpus for _, _, gpus in of) for of in tasks]
    assert moments(m.gpus_in_use(m.all_uses(h, runs))) == [
        sum(gpus for _, _, gpus in tasks_at(jobs, at, False)) for at in range(END)
    ]
    edges: Floats = np.arange(END + 1, dtype=np.float64)
    assert m.fragmentation(uses, NODES, edges).tolist() == [len({node for _, node, _ in of}) / NODES for of in tasks]


@pytest.mark.parametrize("seed", range(60))
def test_nodes_that_stay_idle_so_long(seed: int) -> None:
    rng = Random(seed)
    jobs, least = drawn(rng), rng.randint(1, 25)
    begin, end = rng.randint(0, 20), rng.randint(30, END)
    h, _, runs = history(jobs)
    busy = [{node for _, node, _ in tasks_at(jobs, at, regular=False)} for at in range(END)]
    expected = [0] * END
    for node in range(1, NODES + 1):
        at = begin
        while at < end:
            free = next((after for after in range(at, end) if node in busy[after]), end)
            if free - at >= least:
                for moment in range(at, free):
                    expected[moment] += 1
            at = max(free, at) + 1
    assert moments(m.idle_nodes(m.uses(h, runs), NODES, begin, end, least)) == expected


@pytest.mark.parametrize("seed", range(60))
def test_how_long_a_job_waits_within_its_quota(seed: int) -> None:
    jobs = drawn(Random(seed))
    h, of_jobs, runs = history(jobs)
    quotas = {"a": 8, "b": 17}
    delays = m.delays(h, of_jobs)
    waited = m.waited_in_quota(h, delays, m.uses(h, runs), quotas)
    for job, delay, found in zip(jobs, delays, waited, strict=True):
        use = [
            sum(gpus for vc, _, gpus in tasks_at(jobs, at, False) if vc == job.vc)
            for at in range(job.submit, job.submit + delay)
        ]
        assert found == sum(used + job.gpus <= quotas[job.vc] for used in use)


@pytest.mark.parametrize("seed", range(60))
def test_how_long_the_first_job_of_a_queue_waits_although_there_are_cells(seed: int) -> None:
    jobs = drawn(Random(seed))
    h, of_jobs, runs = history(jobs)
    owned = {"a": 1, "b": 3}
    delays = m.delays(h, of_jobs)
    waited = m.waited_with_cells(h, delays, m.uses(h, runs), owned)
    for number, (job, delay, found) in enumerate(zip(jobs, delays, waited, strict=True)):
        ahead = [one.submit + wait for one, wait in zip(jobs[:number], delays[:number], strict=True) if one.vc == job.vc]
        expected = 0
        for at in range(max([job.submit, *ahead]), job.submit + delay):
            mine = [task for task in tasks_at(jobs, at, False) if task[0] == job.vc]
            if job.gpus >= 8:
                expected += len({node for _, node, _ in mine}) + job.gpus // 8 <= owned[job.vc]
            else:
                held = Counter[int]()
                for _, node, gpus in mine:
                    held[node] += gpus
                expected += sum(gpus + job.gpus > 8 for gpus in held.values()) < owned[job.vc]
        assert found == expected


def test_a_quota_may_have_room_where_no_node_is_free() -> None:
    """Two nodes are owned, and on each the tenant's own job has some GPUs; from 20 on one of them is free. Four GPUs would be
    left of both together, too, before."""
    for width in (8, 4):
        jobs = [Job("x", 5, 0, [Run([1], 0, 20)]), Job("x", 6, 1, [Run([2], 1, 50)]), Job("x", width, 5, [Run([1], 30, 40)])]
        h, of_jobs, runs = history(jobs)
        delays, uses = m.delays(h, of_jobs), m.uses(h, runs)
        assert m.waited_in_quota(h, delays, uses, {"x": 16}).tolist() == [0, 0, 25 if width == 4 else 10]
        assert m.waited_with_cells(h, delays, uses, {"x": 2}).tolist() == [0, 0, 10]


def test_tasks_hold_whole_nodes_and_the_last_one_the_rest() -> None:
    runs = [Run([1, 2], 0, 5), Run([3, 4, 5], 0, 5), Run([1, 2], 0, 5)]
    jobs = [Job("a", gpus, 0, [run]) for gpus, run in zip((12, 6, 16), runs, strict=True)]
    h, _, of_runs = history(jobs)
    assert m.uses(h, of_runs).gpus.tolist() == [8, 4, 2, 2, 2, 8, 8]


def test_a_job_that_never_starts_waits_to_the_end_and_uses_nothing() -> None:
    h, jobs, runs = history([Job("a", 8, 3, []), Job("a", 8, 5, [Run([1], 7, 40)])])
    assert m.delays(h, jobs).tolist() == [37, 2]
    assert len(m.uses(h, runs).node) == 1
    nobody, _, none = history([Job("a", 8, 3, [])])
    assert moments(m.idle_nodes(m.uses(nobody, none), NODES, 0, END, 10)) == [NODES] * END


def test_a_moving_mean_is_of_the_jobs_that_came_in_the_window() -> None:
    submit, values = np.array([10, 0, 20, 21]), np.array([4, 2, 6, 8])
    means = m.moving_mean(submit, values, np.array([0.0, 9.0, 10.0, 21.0, 40.0]), window_us=12)
    assert means[:4].tolist() == [2, 2, 3, 6]
    assert math.isnan(means[4])


def test_an_anomaly_is_a_wait_beyond_the_private_clusters_while_the_quota_has_room() -> None:
    """b waits 20 in all, 5 of it while a is over the quota; in its private cluster it waits 2. c is not there at all."""
    a = Job("x", 8, 0, [Run([1], 0, 15)])
    b = Job("x", 4, 10, [Run([2], 30, 35)])
    c = Job("x", 16, 11, [Run([2, 3], 36, 40)])
    shared, shared_jobs, runs = history([a, b, c])
    private, private_jobs, _ = history([a, b._replace(runs=[Run([1], 12, 17)])])
    delays = m.delays(shared, shared_jobs)
    over = m.excess(shared, delays, private, m.delays(private, private_jobs))
    assert over[:2].tolist() == [0, 18]
    assert math.isnan(over[2])
    within = m.waited_in_quota(shared, delays, m.uses(shared, runs), {"x": 8})
    assert within.tolist() == [0, 15, 0]
    lengths = m.anomalies(over, within)
    assert lengths.tolist() == [0, 15, 0]
    assert m.count_delayed(shared, lengths, 14) == {"x": (1, 1 / 3)}
    assert m.count_delayed(shared, lengths, 15) == {"x": (0, 0)}


def test_the_same_submit_of_two_tenants_is_two_jobs() -> None:
    shared, shared_jobs, _ = history([Job("x", 1, 0, [Run([1], 9, 10)]), Job("y", 1, 0, [Run([1], 5, 6)])])
    private, private_jobs, _ = history([Job("y", 1, 0, [Run([1], 1, 2)]), Job("x", 1, 0, [Run([1], 2, 3)])])
    over = m.excess(shared, m.delays(shared, shared_jobs), private, m.delays(private, private_jobs))
    assert over.tolist() == [7, 4]


def test_jobs_of_one_tenant_that_came_at_once_are_told_apart_by_their_order() -> None:
    first, second = Job("x", 1, 0, [Run([1], 9, 10)]), Job("x", 1, 0, [Run([1], 5, 6)])
    shared, shared_jobs, _ = history([first, second])
    private, private_jobs, _ = history([first._replace(runs=[Run([1], 2, 3)]), second._replace(runs=[Run([1], 1, 2)])])
    over = m.excess(shared, m.delays(shared, shared_jobs), private, m.delays(private, private_jobs))
    assert over.tolist() == [7, 4]


def test_gpus_that_were_taken_are_counted_when_their_runs_are_told() -> None:
    told = [Run([1], 0, 9, 5, "preempted"), Run([1], 9, 20, 15, "reclaimed"), Run([1], 20, 30, 25, "suspended")]
    h, _, runs = history([Job("x", 8, 0, told), Job("x", 2, 1, [Run([2], 1, 20, 12, "reclaimed")])])
    assert m.gpus_preempted(h, runs, np.array([0.0, 10.0, 20.0, 30.0])).tolist() == [8, 10, 0]


def test_fluctuation_effective_utilisation_and_gain() -> None:
    """Half of the time 4 of the 8 GPUs that it owns, a quarter 12, a quarter none."""
    steps = Steps(np.array([0, 20, 20, 30]), np.array([4, -4, 12, -12]))
    assert m.fluctuation(steps, 8, 0, 40) == pytest.approx(math.sqrt(16 / 2 + 16 / 4 + 64 / 4) / 8)
    assert m.fluctuation(steps, 8, 10, 30) == pytest.approx(0.5)
    assert m.effective(steps, 8, 0, 40) == pytest.approx((4 / 2 + 8 / 4) / 8)
    assert m.gain(13.5, 52.3) == pytest.approx(0.258, abs=0.0005)


def test_a_job_queues_while_it_has_no_run() -> None:
    rng = Random(3)
    for _ in range(50):
        jobs = drawn(rng)
        of, _, _ = history(jobs)
        expected = [
            sum(not any(run.placed <= at < run.ended for run in job.runs) for at in range(job.submit, job.runs[-1].ended))
            for job in jobs
        ]
        assert m.queueing_times(of).tolist() == expected


def test_a_job_that_moves_has_two_runs_for_a_while() -> None:
    moved = Job("a", 1, 0, [Run([1], 2, 10), Run([2], 7, 20)])
    back = Job("a", 1, 1, [Run([1], 1, 30), Run([2], 5, 9), Run([1], 40, 41)])
    of, _, _ = history([moved, back])
    assert m.queueing_times(of).tolist() == [2, 10]
