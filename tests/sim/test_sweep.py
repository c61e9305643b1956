"""Sweeps: each case once, in a folder that is whole or absent, on this machine or a cluster, stopped and gone on with."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from scheduler_service.sim.experiments import sweep as sweeping
from scheduler_service.sim.experiments.cases import Case, simulate
from scheduler_service.sim.experiments.kept_results import load
from scheduler_service.sim.experiments.sweep import Stopped, SweepFailed, Watch, sweep
from tests.sim.conftest import WORKERS, environment

HERE = "local[1]"
LIMIT = 60


def case(name: str, seed: int = 1, **other: Any) -> Case:
    """Under fifo, that by which the load is recorded for others."""
    policy = {"name": name, "in_order": True, "label": name} if name == "fifo" else {"name": name}
    told = {"cluster": [{"nodes": 2, "cpus": 32, "memory_gib": 256, "gpus": 8}], "workload": {"kind": "fitgpp", "jobs": 120}}
    return Case.model_validate({**told, "decide_every": 60, "policy": policy, "seed": seed, **other})


class Watching(Watch):
    """Notes what it sees."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.begun: tuple[int, int, int] | None = None
        self.names: list[str] = []
        self.errors: list[str] = []
        self.said: list[str] = []
        self.then = then

    def begin(self, cases: int, kept: int, workers: int) -> None:
        self.begun = cases, kept, workers

    def report_end(self, _number: int, name: str, error: str | None) -> None:
        self.names.append(name)
        self.errors += [error] if error else []
        self.then()

    def say(self, line: str) -> None:
        self.said.append(line)


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.glob("*/*")}


@pytest.mark.parametrize("place", ["local", "dask"])
def test_a_sweep_gives_what_simulating_one_after_the_other_gives(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Byte for byte, wherever it runs; submit times are recorded once a seed."""
    on = f"local[{WORKERS}]" if place == "local" else request.getfixturevalue("cluster")
    cases = [case(name, seed) for name in ("fitgpp", "rand", "fifo") for seed in (1, 2)]
    watch = Watching()
    summaries = sweep(cases, tmp_path, on, watch=watch)
    assert [summary.case for summary in summaries] == cases
    assert watch.begun == (6, 0, WORKERS)
    for seed in (1, 2):
        order = [watch.names.index(f"{name}, seed {seed}") for name in ("fifo", "fitgpp", "rand")]
        assert order[0] == min(order)
    for summary in summaries:
        alone = simulate(summary.case)
        assert summary.numbers == alone.summary
        assert summary.curves == alone.curves
        assert pyarrow.parquet.read_table(summary.folder / "jobs.parquet").equals(alone.jobs)
        assert pyarrow.parquet.read_table(summary.folder / "runs.parquet").equals(alone.runs)
        assert Case.model_validate_json((summary.folder / "case.json").read_text()) == summary.case
        assert summary.took_s > 0
    assert load(tmp_path).complete == summaries


def test_what_is_there_is_not_simulated_again(tmp_path: Path) -> None:
    before = sweep([case("fifo"), case("fitgpp")], tmp_path, HERE, keep="jobs")
    kept = stamps(tmp_path)
    labelled = case("fitgpp", policy={"name": "fitgpp", "label": "ours"})
    watch = Watching()
    after = sweep([case("lrtp"), labelled, case("fifo")], tmp_path, HERE, keep="jobs", watch=watch)
    assert (watch.begun, watch.names) == ((1, 2, 1), ["lrtp, seed 1"])
    assert kept.items() <= stamps(tmp_path).items()
    assert (after[1].numbers, after[2].numbers) == (before[1].numbers, before[0].numbers)
    assert [summary.case.policy.title for summary in load(tmp_path).complete] == ["lrtp", "ours", "fifo"]
    watch = Watching()
    sweep([case("fifo")], tmp_path, HERE, fresh=True, watch=watch)
    assert watch.names == ["fifo, seed 1"]
    assert not watch.said


def test_more_is_kept_only_by_simulating_again(tmp_path: Path) -> None:
    (summary,) = sweep([case("fifo")], tmp_path, HERE, keep="summary")
    assert sorted(path.name for path in summary.folder.iterdir()) == ["case.json", "curves.json", "summary.json"]
    watch = Watching()
    sweep([case("fifo")], tmp_path, HERE, keep="jobs", as_csv=True, watch=watch)
    assert watch.begun == (1, 0, 1)
    names = sorted(path.name for path in summary.folder.iterdir())
    assert names == ["case.json", "curves.json", "jobs.csv", "jobs.parquet", "summary.json"]
    watch = Watching()
    sweep([case("fifo")], tmp_path, HERE, keep="summary", watch=watch)
    assert watch.begun == (0, 1, 1)


def test_a_recording_keeps_its_times_however_little_is_kept(tmp_path: Path) -> None:
    """Its followers may come in a later sweep, and nobody asked for the recording itself."""
    (fitgpp,) = sweep([case("fitgpp")], tmp_path, HERE, keep="summary")
    assert fitgpp.numbers == simulate(case("fitgpp")).summary
    assert (tmp_path / case("fifo").digest() / "times.parquet").exists()
    watch = Watching()
    sweep([case("lrtp")], tmp_path, HERE, keep="summary", watch=watch)
    assert watch.begun == (1, 1, 1)


def test_a_case_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    absent = case("fifo", workload={"kind": "csv", "file": str(tmp_path / "jobs.csv")})
    (tmp_path / "jobs.csv").write_text("no,such,columns\n")
    watch = Watching()
    with pytest.raises(SweepFailed) as failed:
        sweep([absent, case("fifo")], tmp_path / "results", HERE, watch=watch)
    ((broken, error),) = failed.value.failures
    assert broken == absent
    assert "jobs.csv" in error
    assert [summary.case for summary in failed.value.summaries] == [case("fifo")]
    log = tmp_path / "results" / f"{absent.digest()}.error.txt"
    assert str(log) in error
    assert "Traceback" in log.read_text()
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n")
    assert len(sweep([absent, case("fifo")], tmp_path / "results", HERE)) == 2
    assert not log.exists()


def test_who_waits_for_a_recording_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("no,such,columns\n")
    arrivals = {"kind": "closed_loop", "load": 2, "times_from": "fifo"}
    broken = case("fitgpp", workload={"kind": "csv", "file": str(tmp_path / "jobs.csv"), "arrivals": arrivals})
    with pytest.raises(SweepFailed, match="fitgpp, seed 1: its submit times are recorded under fifo, which failed"):
        sweep([broken], tmp_path / "results", HERE)


def test_ctrl_c_keeps_what_is_complete_and_the_same_call_goes_on(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    cases = [case("fifo", seed) for seed in range(4)]
    with pytest.raises(Stopped) as stopped:
        sweep(cases, tmp_path, "local[1]", watch=Watching(interrupt))
    assert (stopped.value.complete, stopped.value.of) == (1, 4)
    assert len(load(tmp_path).complete) == 1
    watch = Watching()
    assert len(sweep(cases, tmp_path, HERE, watch=watch)) == 4
    assert watch.begun == (3, 1, 1)


def test_a_sweep_that_is_killed_leaves_no_half_results(tmp_path: Path) -> None:
    """SIGKILL at whatever moment: what bears a digest's name is complete."""
    (tmp_path / "many.yaml").write_text(
        "cluster: {nodes: 1, cpus: 32, memory_gib: 256, gpus: 8}\n"
        "workload: {kind: fitgpp, jobs: 40}\npolicies: [{name: fifo, preset: paper}]\nseeds: 1-300\n"
    )
    command = [sys.executable, "-m", "scheduler_service.sim", "run", "many.yaml", "-o", "out", "-j", "1", "--no-figures"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + LIMIT
    while len(list((tmp_path / "out").glob("[!.]*/"))) < 10:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = list((tmp_path / "out").glob("[!.]*/"))
    assert len(found) >= 10
    for folder in found:
        assert json.loads((folder / "summary.json").read_text())["numbers"]["jobs"] == 40
        assert pyarrow.parquet.read_table(folder / "runs.parquet").num_rows == 40
    assert {summary.folder for summary in load(tmp_path / "out").complete} == set(found)


def test_results_of_another_engine_are_told_apart(tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are still good for something; workers of a cluster that have another one are not."""
    (summary,) = sweep([case("fifo")], tmp_path, HERE, keep="summary")
    assert summary.engine == sweeping.engine()
    monkeypatch.setattr(sweeping, "engine", lambda: "another")
    watch = Watching()
    sweep([case("fifo")], tmp_path, HERE, keep="summary", watch=watch)
    assert watch.said == ["1 of the results were made by another version of Ebb's engine; --fresh makes all anew"]
    with pytest.raises(SweepFailed, match="this worker has another version of Ebb than the sweep"):
        sweep([case("fifo")], tmp_path, cluster, fresh=True)
