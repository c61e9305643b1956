"""Places where simulations run: whatever one does with work, with what fails and with who dies, the other does, too."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler_service.sim.experiments.runner_port import BadAddress, Done, Failed, Report, Runner, Tell, Told
from scheduler_service.sim.experiments.runners import runner
from tests.sim.conftest import WORKERS

LIMIT = 60


def perform(work: Any, tell: Tell) -> Any:
    """What a worker is asked to do in these tests."""
    what, value = work
    if what == "double":
        return 2 * value
    if what == "raise":
        raise LookupError(value)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "pid":
        return os.getpid()
    if what == "tell":
        tell(0, value)
        return value
    assert what == "never ends"
    folder = Path(value)
    (folder / f"{os.getpid()}.begun").touch()
    try:
        while True:
            tell(1, 2)
            time.sleep(0.01)
    finally:
        (folder / f"{os.getpid()}.left").touch()


@pytest.fixture(params=["local", "dask"])
def on(request: pytest.FixtureRequest) -> str:
    return f"local[{WORKERS}]" if request.param == "local" else request.getfixturevalue("cluster")


def ended(workers: Runner) -> dict[int, Report]:
    found = {report.number: report for report in workers.reports() if not isinstance(report, Told)}
    return dict(sorted(found.items()))


def wait_for(what: str, folder: Path, count: int) -> None:
    until = time.monotonic() + LIMIT
    while len(list(folder.glob(what))) < count:
        assert time.monotonic() < until, f"there are not {count} {what} in {folder}"
        time.sleep(0.01)


def test_all_work_is_done_and_what_fails_is_told_beside_it(on: str) -> None:
    with runner(on, perform) as workers:
        assert workers.workers == WORKERS
        for number in range(5):
            workers.submit(number, ("raise", "no such thing") if number == 2 else ("double", number))
        found = ended(workers)
    failure = found.pop(2)
    assert found == {number: Done(number, 2 * number) for number in (0, 1, 3, 4)}
    assert isinstance(failure, Failed)
    assert failure.error == "LookupError: no such thing"
    assert "in perform" in failure.trace


def test_work_may_come_of_work(on: str) -> None:
    with runner(on, perform) as workers:
        workers.submit(1, ("double", 1))
        found = []
        for report in workers.reports():
            assert isinstance(report, Done)
            found.append(report.value)
            if len(found) < 4:
                workers.submit(len(found) + 1, ("double", report.value))
    assert found == [2, 4, 8, 16]


def test_workers_say_how_far_they_are(on: str) -> None:
    with runner(on, perform) as workers:
        workers.submit(7, ("tell", 100))
        reports = list(workers.reports())
    assert reports[-1] == Done(7, 100)
    if on.startswith("local"):  # elsewhere words may be overtaken by the result
        assert reports[0] == Told(7, 0, 100)


def test_a_worker_that_dies_takes_only_its_own_work_with_it(on: str) -> None:
    with runner(on, perform) as workers:
        for number in range(6):
            workers.submit(number, ("die", None) if number == 1 else ("double", number))
        found = ended(workers)
    failure = found.pop(1)
    assert found == {number: Done(number, 2 * number) for number in (0, 2, 3, 4, 5)}
    assert isinstance(failure, Failed)
    assert "SIGKILL" in failure.error or "died" in failure.error


def test_leaving_stops_what_is_under_way(on: str, tmp_path: Path) -> None:
    """An endless piece of work ends soon; on a cluster by itself, as it learns that nobody waits for it."""
    with runner(on, perform) as workers:
        for number in range(3):
            workers.submit(number, ("never ends", str(tmp_path)))
        wait_for_reports = workers.reports()
        while len(list(tmp_path.glob("*.begun"))) < WORKERS:
            next(wait_for_reports)
    if on.startswith("local"):
        assert not [child for child in multiprocessing.active_children() if child.name.startswith("SpawnProcess")]
    else:
        wait_for("*.left", tmp_path, WORKERS)
        with runner(on, perform) as workers:  # and the workers are free
            workers.submit(0, ("double", 21))
            assert ended(workers) == {0: Done(0, 42)}


def test_a_cluster_may_get_its_workers_later_and_may_go_away(tmp_path: Path) -> None:
    """Nobody waits for ever: what can be done is done once somebody comes, and what can not is told."""
    from scheduler_service.sim.experiments import dask_runner

    assert dask_runner.LOOK_EVERY
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"temporary-directory": str(tmp_path)}),
        LocalCluster(n_workers=0, processes=False, threads_per_worker=1, dashboard_address=":0") as made,
        runner(made.scheduler_address, perform) as workers,
    ):
        assert workers.workers == 0
        workers.submit(0, ("double", 21))
        made.scale(1)
        assert ended(workers) == {0: Done(0, 42)}
        assert workers.workers == 1
        made.close()
        for number in (1, 2):
            workers.submit(number, ("double", 1))
        found = ended(workers)
    assert list(found) == [1, 2]
    for failure in found.values():
        assert isinstance(failure, Failed)
        assert "Dask" in failure.error


def test_workers_of_this_machine_do_not_outlive_it(tmp_path: Path) -> None:
    """A sweep that is killed outright leaves nobody who goes on simulating for it."""
    sweep = multiprocessing.get_context("spawn").Process(target=_never_ending_sweep, args=(str(tmp_path),))
    sweep.start()
    wait_for("*.begun", tmp_path, WORKERS)
    assert sweep.pid is not None
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.join()
    wait_for("*.left", tmp_path, WORKERS)


def _never_ending_sweep(folder: str) -> None:
    with runner(f"local[{WORKERS}]", perform) as workers:
        for number in range(WORKERS):
            workers.submit(number, ("never ends", folder))
        for _ in workers.reports():
            pass


def test_ctrl_c_is_not_for_the_workers() -> None:
    """A terminal sends it to all; only who asked for the sweep may answer it."""
    with runner("local[1]", perform) as workers:
        workers.submit(0, ("pid", None))
        (report,) = workers.reports()
        assert isinstance(report, Done)
        os.kill(report.value, signal.SIGINT)
        workers.submit(1, ("pid", None))
        assert list(workers.reports()) == [Done(1, report.value)]


@pytest.mark.parametrize("on", ["", "local[0]", "local[x]", "here", "dask-head:8786", "tcp://dask-head", "tcp://:8786/x"])
def test_what_is_no_place_is_refused(on: str) -> None:
    with pytest.raises(BadAddress):
        runner(on, perform)


def test_a_cluster_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from scheduler_service.sim.experiments import dask_runner

    monkeypatch.setattr(dask_runner, "CONNECT_LIMIT", 0.5)
    with pytest.raises(BadAddress, match="no Dask scheduler answers at tcp"):
        runner("tcp://127.0.0.1:9", perform)
