"""`make demo SHOW=gandiva`: its jobs, what it says of step logs, its tables, and verdicts about packing by real processes."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
from rich.console import Console

from examples.demo.gandiva import whole_device
from examples.demo.gandiva.acts import Move, Packing, Sizes, Turns
from examples.demo.gandiva.play import EXPECTED, KINDS, Stage, first_two, share
from examples.demo.gandiva.rates import Step, lost_or_repeated, rate, read_steps, turns
from examples.demo.gandiva.report import report
from examples.demo.gandiva.whole_device import Token
from examples.demo.gandiva.work import WORK, run
from examples.demo.stage import Failed
from tests import preloaded
from tests.e2e.test_demo_allox import NeverStopping
from tests.harness import LIMIT
from tests.store.fixtures import furnish
from tests.store.waiting import wait_for

ROOT = Path(__file__).parents[2]


def steps(*ended: float, first: int = 1) -> list[Step]:
    return [Step(at, number, 1, 0, "n1") for number, at in enumerate(ended, first)]


# ---- step logs ---------------------------------------------------------------------------------------------------------


def test_a_step_log_is_read_but_for_a_line_that_is_being_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_steps(log) == []
    log.write_text("1.5000 1 1 0 n1\n2.5000 2 2 1 n2\n3.5")
    assert read_steps(log) == [Step(1.5, 1, 1, 0, "n1"), Step(2.5, 2, 2, 1, "n2")]


def test_the_rate_counts_the_steps_that_end_in_this_time() -> None:
    assert rate(steps(1, 2, 3, 4, 5), 2, 4) == 1.0


def test_turns_are_told_from_execution_at_the_same_time() -> None:
    one, other = [0.1 * i for i in range(10)], [1 + 0.1 * i for i in range(10)]
    assert turns({"a": steps(*one), "b": steps(*other)}, -1, 9) == [10, 10]
    assert turns({"a": steps(*one), "b": steps(*(at + 0.05 for at in one))}, -1, 9) == [1] * 20
    assert turns({"a": [], "b": []}, 0, 1) == []


def test_a_step_that_is_lost_or_repeated_is_told() -> None:
    assert lost_or_repeated(steps(1, 2, 3)) == []
    for wrong in (steps(1, 2) + steps(3, first=4), steps(1, 2) + steps(3, first=2), steps(1, first=2)):
        assert "each once" in lost_or_repeated(wrong)[0]


# ---- jobs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WORK)
def test_a_job_does_steps_until_it_is_told_to_end_and_goes_on_from_its_checkpoint(kind: str, tmp_path: Path) -> None:
    log, end = tmp_path / "log", tmp_path / "end"
    command = [sys.executable, "-m", "examples.demo.gandiva.work", kind, "--log", str(log), "--end", str(end)]
    for _ in range(2):
        before = len(read_steps(log))
        with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "EBB_CHECKPOINT_DIR": str(tmp_path)}) as job:
            wait_for(lambda before=before: len(read_steps(log)) >= before + 3, LIMIT)  # type: ignore[misc]
            job.terminate()
            job.wait(60)
        assert job.returncode == 143
    end.touch()
    run(WORK[kind](tmp_path), log, end, parts=1, elastic=False)  # ends at once
    assert len(read_steps(log)) >= 6
    assert lost_or_repeated(read_steps(log)) == []


def test_one_process_at_a_time_fills_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_device, "KEPT", 0.0)
    inside: list[int] = []
    most: list[int] = []

    def compute(token: Token) -> None:
        for _ in range(20):
            token.have()
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            token.give()

    threads = [Thread(target=compute, args=(Token(tmp_path),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 60


def test_a_process_that_is_parked_does_not_keep_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_device, "PATIENCE", 0.01)
    parked, other = Token(tmp_path), Token(tmp_path)
    parked.have()
    other.have()
    other.give()
    parked.give()
    other.have()
    with pytest.raises(BlockingIOError):
        os.read(parked._fifo, 1)  # there is one token again, and no more


# ---- the end -----------------------------------------------------------------------------------------------------------


def test_the_report_has_what_was_measured() -> None:
    said = StringIO()
    report(
        [Turns(("reader-1", "reader-2"), (15.04, 16.0), 47.4)],
        [Packing("reader", 31, 62, 1.99, True), Packing("cruncher", 20, 19, 0.97, False)],
        Move("mover", "n2", "n1", 180, 0.52),
        [Sizes(1, 31), Sizes(2, 61), Sizes(1, 30)],
        99.9,
        Console(file=said, width=110),
    )
    shown = " ".join(said.getvalue().split())
    assert "reader-1 and reader-2 15.0 and 16.0 47" in shown
    assert "reader 31.0 steps/s 62.0 steps/s 1.99 times kept" in shown
    assert "cruncher 20.0 steps/s 19.0 steps/s 0.97 times undone" in shown
    assert "mover n2 -> n1 without a step for 0.5 s; step 180 follows step 179" in shown
    assert "elastic 1 -> 2 devices 31.0 -> 61.0 parts" in shown
    assert "elastic 2 -> 1 devices 61.0 -> 30.0 parts" in shown


def test_it_needs_two_cpus() -> None:
    assert first_two({5, 3, 4}) == (3, 4)
    with pytest.raises(Failed, match="needs 2 CPUs or more for its devices, and this process may use 1"):
        first_two({3})


# ---- real processes ----------------------------------------------------------------------------------------------------


@pytest.mark.long  # to run alone: on busy CPUs two processes get twice as much as one, and packing looks faster
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1]], ids="-".join)
def test_the_verdict_about_packing_is_that_of_the_kind_of_jobs_whichever_device_they_are_on(
    kinds: tuple[str, ...], folder: Path
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the devices are two CPUs")
    said = StringIO()
    furnish(folder / "show" / "ebb" / "db")
    stage = Stage(folder / "show", NeverStopping(), Console(file=said, width=200), preloaded.start)
    with stage as site:
        turned, packed = share(stage, site, kinds)
        places = [site.job(f"{kind}-{number}").devices for kind in kinds for number in (1, 2)]
        assert places == [(0,), (0,), (1,), (1,)]
        site.end(*(f"{kind}-{number}" for kind in kinds for number in (1, 2)))
    assert [each.jobs for each in turned] == [(f"{kind}-1", f"{kind}-2") for kind in kinds]
    assert {each.kind: each.kept for each in packed} == EXPECTED, said.getvalue()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_whole_show() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--show", "gandiva"], cwd=ROOT, capture_output=True, text=True, timeout=580
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    for words in ("take turns", "packing is kept", "packing is undone", "No step is lost", "it grows", "gives back"):
        assert words in done.stdout
