"""From lives to tables and figures: every number is also counted second by second, or is known beforehand."""

import csv as plain_csv
import io
import math
import tracemalloc
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from scheduler_service.core.model import JobClass, JobSpec, StopReason, TaskGroup
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.experiments import results
from scheduler_service.sim.experiments.figures import COSTS
from scheduler_service.sim.experiments.history import History, Steps
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.experiments.metrics import POINTS, QUANTILES, curves, jain, numbers
from scheduler_service.sim.experiments.results import Lives
from scheduler_service.sim.jobs import SimJob
from tests.sim.building import intervals_us

CAPACITY = Vector(64_000, 256 << 10, 16)


def job(gpus: int, work: int, trial: bool = False, user: str = "ann", vc: str = "lab", tasks: int = 1) -> SimJob:
    demand = Vector(1000 * gpus, 1024 * gpus, gpus)
    each = Vector(1000 * gpus // tasks, 1024 * gpus // tasks, gpus // tasks)
    gang = (TaskGroup(tasks, each),) if tasks > 1 else ()
    job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
    return SimJob(JobSpec(("x",), demand, job_class, 60 * SECOND, gang=gang), work * SECOND, 0, user, vc)


def launch(placed: int, began: int | None, signalled: int | None, ended: int, nodes: tuple[int, ...] = (1,)) -> Launch:
    """In seconds; one that was signalled was preempted."""
    stamps = [None if at is None else at * SECOND for at in (began, signalled, ended)]
    why = None if signalled is None else StopReason.PREEMPTED
    return Launch(nodes, placed * SECOND, stamps[0], stamps[1], stamps[2], works_us=stamps[0], why=why)


def kept(*lives: Life) -> Lives:
    sink = Lives()
    for life in lives:
        sink.add(life)
    return sink


def of(sink: Lives, capacity: Vector = CAPACITY) -> dict[str, float]:
    return numbers(History(*sink.tables(), capacity))


def preempted_once() -> Life:
    """A job of two GPUs and 100 s of work, which has its GPUs from 10 to 40, is away, and comes back from 70 to 150."""
    launches = [launch(10, 12, 32, 40), launch(70, 70, None, 150, (2,))]
    return Life(job(2, 100), 2, 5 * SECOND, 150 * SECOND, 100 * SECOND, 0, launches)


def never_begun() -> Life:
    return Life(job(99, 50, trial=True, user="bob", vc=""), 1, 0)


def test_a_row_has_what_became_of_the_job() -> None:
    sink = kept(preempted_once(), never_begun())
    jobs, runs = sink.tables()
    first, second = jobs.to_pylist()
    assert first == {
        "job": 1, "user": "bob", "vc": "", "class": "trial", "tasks": 1, "cpu_milli": 99_000, "memory_mib": 99 << 10,
        "gpus": 99, "grace_us": 60 * SECOND, "work_us": 50 * SECOND, "submit_us": 0, "start_us": None, "end_us": None,
        "wait_us": None, "slowdown": None, "preemptions": 0, "done_us": 0, "lost_us": 0,
    }  # fmt: skip
    assert second == {
        "job": 2, "user": "ann", "vc": "lab", "class": "best_effort", "tasks": 1, "cpu_milli": 2000, "memory_mib": 2 << 10,
        "gpus": 2, "grace_us": 60 * SECOND, "work_us": 100 * SECOND, "submit_us": 5 * SECOND, "start_us": 12 * SECOND,
        "end_us": 150 * SECOND, "wait_us": 45 * SECOND, "slowdown": 1.45, "preemptions": 1,
        "done_us": 100 * SECOND, "lost_us": 0,
    }  # fmt: skip
    stamps = ("placed_us", "began_us", "works_us", "signalled_us", "lost_us", "ended_us")
    rows = [([row["job"], row["run"], row["nodes"], row["why"]], [row[name] for name in stamps]) for row in runs.to_pylist()]
    assert rows == [
        ([2, 1, [1], "preempted"], [10 * SECOND, 12 * SECOND, 12 * SECOND, 32 * SECOND, None, 40 * SECOND]),
        ([2, 2, [2], ""], [70 * SECOND, 70 * SECOND, 70 * SECOND, None, None, 150 * SECOND]),
    ]


def test_the_nodes_of_a_gang_stay_with_their_run() -> None:
    """Lives come in the order of their ends, rows in that of their ids."""
    gangs = [
        Life(job(8, 9, tasks=4), 3, 0, 9 * SECOND, launches=[launch(0, 0, None, 9, (4, 5, 6, 7))]),
        Life(job(1, 9), 1, 0, 9 * SECOND, launches=[launch(0, 0, None, 9, (1,))]),
        Life(job(4, 9, tasks=2), 2, 0, 9 * SECOND, launches=[launch(0, 0, 1, 2, (2, 3)), launch(3, 3, None, 9, (8, 9))]),
    ]
    jobs, runs = kept(*gangs).tables()
    assert runs["nodes"].to_pylist() == [[1], [2, 3], [8, 9], [4, 5, 6, 7]]
    assert jobs["tasks"].to_pylist() == [1, 2, 4]


def test_tables_survive_their_files() -> None:
    jobs, runs = (
        pa.parquet.read_table(io.BytesIO(results.parquet(table))) for table in kept(preempted_once(), never_begun()).tables()
    )
    assert [jobs, runs] == [*kept(preempted_once(), never_begun()).tables()]
    assert numbers(History(jobs, runs, CAPACITY)) == of(kept(preempted_once(), never_begun()))


def test_a_spreadsheet_gets_seconds_cpus_and_gib() -> None:
    jobs, _ = kept(preempted_once(), never_begun()).tables()
    first, second = plain_csv.DictReader(results.csv(jobs).decode().splitlines())
    assert (second["wait_s"], second["cpus"], second["memory_gib"], second["class"]) == ("45", "2", "2", "best_effort")
    assert (first["end_s"], first["slowdown"]) == ("", "")
    gang = Life(job(4, 9, tasks=2), 2, 0, 9 * SECOND, launches=[launch(0, 0, None, 9, (2, 3))])
    (run,) = plain_csv.DictReader(results.csv(kept(gang).tables()[1]).decode().splitlines())
    assert (run["nodes"], run["ended_s"], run["signalled_s"]) == ("2 3", "9", "")


def test_figures_that_are_known_beforehand() -> None:
    """One job on two of sixteen GPUs; it waits 5 s, then 30; leaves in 8 s; and takes 2 s to begin."""
    told = of(kept(preempted_once()))
    assert told["makespan_h"] == 145 / 3600
    assert told["best_effort.slowdown.p50"] == told["all.slowdown.mean"] == 1.45
    assert told["queue.mean"] == (5 + 30) / 145
    assert (told["queue.max"], told["queue.p95"]) == (1, 1)
    assert told["utilisation.gpu"] == pytest.approx(2 * (30 + 80) / (16 * 145))
    assert (told["preemptions"], told["preempted.share"], told["interval_s.p50"]) == (1, 1, 38)
    hours = {name: told[f"gpu_h.{name}"] * 3600 for name in ("capacity", "useful", "lost", "grace", "starting", "idle")}
    assert hours == pytest.approx(
        {"capacity": 16 * 145, "useful": 200, "lost": 0, "grace": 16, "starting": 4, "idle": 16 * 145 - 220}
    )
    assert not [name for name in told if "trial" in name and name != "trial.jobs"]
    assert "fairness.user.slowdown" not in told


def test_runs_that_leave_for_the_owners_of_cells_are_counted_apart() -> None:
    """Two of one job and one of another, of three jobs; the trials' preemptions do not count them."""

    def left(number: int, *whys: StopReason | None) -> Life:
        stays = [launch(20 * n, 20 * n, 20 * n + 10, 20 * n + 15) for n in range(len(whys))]
        for stay, why in zip(stays, whys, strict=True):
            stay.why = why
        return Life(job(1, 10 * len(whys)), number, 0, stays[-1].ended_us, 10 * len(whys) * SECOND, 0, stays)

    reclaimed, preempted = StopReason.RECLAIMED, StopReason.PREEMPTED
    told = of(kept(left(1, reclaimed, reclaimed), left(2, preempted, reclaimed), left(3, StopReason.GANG)))
    assert (told["reclaimed"], told["reclaimed.share"]) == (3, pytest.approx(2 / 3))
    assert told["preemptions"] == 1


def test_an_interval_goes_over_runs_that_never_began() -> None:
    """They end no interval, and begin none while one is open; before the first run one begins with them."""
    launches = [launch(0, None, 1, 2), launch(5, 6, 20, 22), launch(30, None, 31, 32), launch(40, 41, None, 90)]
    life = Life(job(1, 63), 1, 0, 90 * SECOND, 63 * SECOND, 0, launches)
    again = Life(job(1, 63), 2, 0, 90 * SECOND, 63 * SECOND, 0, [launch(0, 0, 7, 9), launch(9, 19, None, 90)])
    found = History(*kept(life, again).tables(), CAPACITY).intervals().tolist()
    assert found == [*intervals_us(life), *intervals_us(again)] == [5 * SECOND, 21 * SECOND, 12 * SECOND]


def random_life(rng: Random, number: int) -> Life:
    """Whatever may happen to a job, at whole seconds."""
    submit = at = rng.randrange(100)
    launches, done = [], 0
    lost = 0
    for _ in range(rng.randrange(4)):
        placed = at + rng.randrange(20)
        began = None if rng.random() < 0.2 else placed + rng.randrange(4)
        signalled = placed + rng.randrange(4, 20)
        at = signalled + rng.randrange(8)
        launches.append(launch(placed, began, signalled, at))
        if rng.random() < 0.3:  # a node of the gang dies
            broken = rng.randrange(placed, at + 1)
            launches[-1].lost_us = broken * SECOND
            lost += 0 if began is None else max(min(signalled, broken) - began, 0)
        else:
            done += 0 if began is None else signalled - began
    last = at + rng.randrange(20)
    end = last + rng.randrange(1, 30)
    launches.append(launch(last, last, None, end + 3))  # of which it is heard three seconds after its end
    work = done + end - last
    made = job(rng.randrange(4), work, rng.random() < 0.3, rng.choice("abc"), rng.choice(["x", "y"]))
    return Life(made, number, submit * SECOND, (end + 3) * SECOND, work * SECOND, lost * SECOND, launches)


def spent_on(life: Life, run: Launch, at: int) -> str:
    """What a run holds its GPUs for in this microsecond."""
    if run.lost_us is not None and run.lost_us <= at:
        return "hanging"
    if run.began_us is None or at < run.began_us:
        return "starting"
    if run.signalled_us is not None and run.signalled_us <= at:
        return "grace"
    return "ending" if run is life.launches[-1] and at >= (life.end_us or 0) - 3 * SECOND else "work"


@pytest.mark.parametrize("seed", range(8))
def test_levels_and_costs_are_those_that_counting_gives(seed: int) -> None:
    """Second by second: who waits, who holds what, and what for."""
    rng = Random(seed)
    lives = [random_life(rng, number) for number in range(1, 30)]
    first, last = min(life.submit_us for life in lives) // SECOND, max(life.end_us or 0 for life in lives) // SECOND
    waiting, held, spent = [], [], Counter[str]()
    for second in range(first, last):
        at = second * SECOND
        there = [life for life in lives if life.submit_us <= at < (life.end_us or 0)]
        running = [
            (life, run)
            for life in there
            for run in life.launches
            if run.ended_us is not None and run.placed_us <= at < run.ended_us
        ]
        waiting.append(len(there) - len(running))
        held.append(sum(life.job.spec.demand.devices for life, _ in running))
        for life, run in running:
            spent[spent_on(life, run, at)] += life.job.spec.demand.devices
    rng.shuffle(lives)
    history = History(*kept(*lives).tables(), CAPACITY)
    told = numbers(history)
    assert told["queue.mean"] == pytest.approx(sum(waiting) / len(waiting))
    assert told["queue.max"] == max(waiting)
    assert told["queue.p95"] == sorted(waiting)[math.ceil(0.95 * len(waiting)) - 1]
    assert told["utilisation.gpu"] == pytest.approx(sum(held) / len(held) / CAPACITY.devices)
    for name in ("starting", "ending", "grace", "hanging"):
        assert told[f"gpu_h.{name}"] * 3600 == pytest.approx(spent[name]), name
    assert (told["gpu_h.useful"] + told["gpu_h.lost"]) * 3600 == pytest.approx(spent["work"])
    useful = sum(life.job.spec.demand.devices * life.job.work_us for life in lives) / SECOND
    assert told["gpu_h.useful"] * 3600 == pytest.approx(useful)
    assert sum(told[f"gpu_h.{name}"] for name in COSTS) == pytest.approx(told["gpu_h.capacity"])
    for name, job_class in (("trial", JobClass.TRIAL), ("best_effort", JobClass.BEST_EFFORT)):
        slowdowns = [life.slowdown() for life in lives if life.job.spec.job_class is job_class]
        assert told[f"{name}.slowdown.mean"] == pytest.approx(sum(slowdowns) / len(slowdowns))
        assert told[f"{name}.slowdown.max"] == max(slowdowns)
    intervals = [interval for life in sorted(lives, key=lambda life: life.id) for interval in intervals_us(life)]
    assert history.intervals().tolist() == intervals
    drawn = curves(history)
    shares = np.array(drawn["utilisation.gpu"])
    assert shares.mean() == pytest.approx(told["utilisation.gpu"], abs=1e-5)
    queued = np.array(drawn["trial.queue"]) + np.array(drawn["best_effort.queue"])
    assert len(queued) == len(drawn["hours"]) == POINTS
    assert queued.mean() == pytest.approx(told["queue.mean"], abs=1e-5)
    assert drawn["trial.slowdown"][QUANTILES.index(50.0)] == pytest.approx(told["trial.slowdown.p50"], abs=1e-5)


def test_a_percentile_lies_between_two_jobs_in_proportion() -> None:
    """The documented definition: the value at the place q (n - 1), here 0.95 * 4 = 3.8 between the fourth and the fifth."""
    ends = [10, 20, 30, 40, 90]
    lives = [
        Life(job(1, 10), n, 0, end * SECOND, 10 * SECOND, 0, [launch(end - 10, end - 10, None, end)])
        for n, end in enumerate(ends)
    ]
    assert of(kept(*lives))["all.completion_s.p95"] == pytest.approx(40 + 0.8 * 50)


def test_what_waits_for_ever_is_counted_apart() -> None:
    told = of(kept(preempted_once(), never_begun()))
    assert (told["jobs"], told["unfinished"], told["trial.jobs"]) == (2, 1, 1)
    assert "trial.slowdown.mean" not in told
    assert told["all.slowdown.mean"] == 1.45
    assert told["queue.max"] == 2  # it stands in the queue to the end


def test_jains_index() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == 1
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25


def test_fairness_is_between_users_and_not_between_their_jobs() -> None:
    """Ann's two jobs have slowdowns of 1 and 3, Bob's one has 2: as users they fare alike, as do their clusters."""

    def one(number: int, user: str, wait: int) -> Life:
        stay = launch(wait, wait, None, wait + 10)
        return Life(job(1, 10, user=user, vc=user), number, 0, stay.ended_us, 10 * SECOND, 0, [stay])

    told = of(kept(one(1, "ann", 0), one(2, "ann", 20), one(3, "bob", 10)))
    assert told["fairness.user.slowdown"] == told["fairness.vc.slowdown"] == 1
    assert told["vc.ann.slowdown.mean"] == told["vc.bob.slowdown.mean"] == told["fairness.user.slowdown.worst"] == 2
    assert (told["vc.ann.share"], told["vc.bob.share"]) == (20 / 40, 10 / 20)


def test_a_fairness_of_nothing_is_no_figure() -> None:
    """Nobody got anything: Jain's index would be 0 / 0, which no JSON can hold."""
    idle = [Life(job(1, 10, user=user, vc=user), number, 0) for number, user in enumerate(("ann", "bob"), 1)]
    without, having = (Life(job(n, 10), 3, 0, 10 * SECOND, 10 * SECOND, 0, [launch(0, 0, None, 10)]) for n in (0, 1))
    told = of(kept(*idle, without))
    assert "fairness.user.share" not in told
    assert (told["vc.ann.share"], told["vc.bob.share"]) == (0, 0)
    assert all(map(math.isfinite, told.values()))
    assert of(kept(*idle, having))["fairness.user.share"] == 0.5


def test_nothing_at_all_has_figures_too() -> None:
    assert of(Lives()) == {"jobs": 0, "unfinished": 0}
    assert curves(History(*Lives().tables(), CAPACITY)) == {}


def test_a_level_is_right_between_its_changes() -> None:
    level = Steps(np.array([10, 30, 20, 40]), np.array([2, -1, 3, -4]))  # 2 from 10, 5 from 20, 4 from 30, 0 from 40
    assert level.means(np.array([0.0, 10, 15, 25, 45])).tolist() == [0, 2, 3.5, (5 * 5 + 4 * 10) / 20]
    assert (level.quantile(0.3), level.quantile(0.5), level.quantile(1), level.largest()) == (2, 4, 5, 5)


def test_half_a_million_jobs_have_room() -> None:
    """A simulation of 2^19 jobs has 600 MB in all; this is the share of what is kept of them, and of their tables."""
    life = preempted_once()
    tracemalloc.start()
    try:
        sink, count = Lives(), 2**14
        for number in range(count):
            life.id = number
            sink.add(life)
        held = tracemalloc.get_traced_memory()[0] / count
        history = History(*sink.tables(), CAPACITY)
        assert numbers(history)["jobs"] == count
        most = tracemalloc.get_traced_memory()[1] / count
    finally:
        tracemalloc.stop()
    assert held * 2**19 < 150 * 2**20
    assert most * 2**19 < 500 * 2**20


def test_a_folder_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.write(tmp_path / "case", {"a": b"1", "b": b"2"})
    written = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda self, data: written(self, data) if self.name == "a" else _full_disk())
    with pytest.raises(OSError, match="no space"):
        results.write(tmp_path / "case", {"a": b"3", "b": b"4"})
    with pytest.raises(OSError, match="no space"):
        results.write(tmp_path / "other", {"a": b"3", "b": b"4"})
    assert [path.name for path in tmp_path.iterdir()] == ["case"]
    assert (tmp_path / "case" / "a").read_bytes() == b"1"
    monkeypatch.undo()
    results.write(tmp_path / "case", {"c": b"5"})
    assert [path.name for path in (tmp_path / "case").iterdir()] == ["c"]


def test_two_may_make_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other sweep comes between: after the old one is away, before the new one is there."""
    renamed = Path.rename

    def rename(self: Path, target: Path) -> Path:
        moved = renamed(self, target)
        if self.name == "case":
            (tmp_path / "case").mkdir()
            (tmp_path / "case" / "theirs").touch()
        return moved

    results.write(tmp_path / "case", {"a": b"1"})
    monkeypatch.setattr(Path, "rename", rename)
    results.write(tmp_path / "case", {"b": b"2"})
    assert [path.name for path in tmp_path.iterdir()] == ["case"]
    assert [path.name for path in (tmp_path / "case").iterdir()] == ["theirs"]


def _full_disk() -> int:
    raise OSError("no space")
