"""The demo's own checks (do they notice what they are there for?), and what Ctrl-C leaves of it: nothing."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from client_sdk import Candidate, Decision, JobClass, JobEvent, JobEventKind, JobSpec, Resources
from examples.demo.scenario import STEP_LOG
from examples.demo.scores import disagreements, recompute
from examples.demo.steps import Line, last_step
from examples.demo.verify import Evidence, problems

# ---- verify ------------------------------------------------------------------------------------------------------------


def log(*runs: Sequence[int]) -> list[Line]:
    return [Line(run, step) for run, steps in enumerate(runs, 1) for step in steps]


GOOD = Evidence(log(range(1, 41), range(41, 101)), 100, [40], "0x1.8p-2", "0x1.8p-2")


def test_a_job_that_resumed_is_accepted() -> None:
    assert problems(GOOD) == []
    assert problems(replace(GOOD, log=log(range(1, 41), range(41, 71), range(71, 101)), checkpoints=[40, 70])) == []


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (replace(GOOD, log=log(range(1, 41), range(1, 101))), ["run 2 begins at step 1, not at 41", "40 steps ran more than"]),
        (replace(GOOD, log=log(range(1, 41), range(40, 101))), ["run 2 begins at step 40, not at 41", "1 steps ran more than"]),
        (
            replace(GOOD, log=log(range(1, 41), range(42, 101))),
            ["begins at step 42", "1 steps never ran, the first of them 41"],
        ),
        (replace(GOOD, log=log(range(1, 43), range(41, 101))), ["run 1 ends with step 42", "2 steps ran more than once"]),
        (replace(GOOD, log=log([*range(1, 41), 40], range(41, 101))), ["one after the other", "1 steps ran more than once"]),
        (replace(GOOD, log=log(range(1, 41), range(41, 100))), ["run 2 ends with step 99", "1 steps never ran"]),
        (replace(GOOD, log=log(range(1, 34), range(34, 101)), checkpoints=[33]), ["33 of 100 steps, before a third"]),
        (replace(GOOD, log=log(range(1, 101))), ["1 checkpoints, but steps of 1 runs"]),
        (replace(GOOD, checkpoints=[]), ["0 checkpoints, but steps of 2 runs"]),
        (replace(GOOD, log=[]), ["100 steps never ran"]),
        (replace(GOOD, loss="0x1.8000000000001p-2"), ["the loss is 0x1.8000000000001p-2, and 0x1.8p-2 when left alone"]),
    ],
    ids=[
        "anew",
        "twice",
        "skipped",
        "past-its-checkpoint",
        "repeated",
        "unfinished",
        "early",
        "whole",
        "lost",
        "empty",
        "loss",
    ],
)
def test_what_did_not_resume_is_rejected(evidence: Evidence, said: list[str]) -> None:
    found = "; ".join(problems(evidence))
    assert all(part in found for part in said), found


# ---- scores ------------------------------------------------------------------------------------------------------------

NODE = Resources(cpus=8, memory_mib=800, devices=8)


def job(devices: int, grace: int, job_class: JobClass = JobClass.BEST_EFFORT) -> JobSpec:
    demand = Resources(cpus=1, memory_mib=100, devices=devices)
    return JobSpec(command=("x",), resources=demand, job_class=job_class, grace_period=timedelta(seconds=grace))


SPECS = {1: job(4, 10), 2: job(2, 20), 3: job(2, 5), 4: job(3, 0, JobClass.TRIAL)}
STORY = [JobEvent(job_id=n, time=datetime.now(UTC), kind=JobEventKind.PLACED, run=1, node="n", commit_no=n) for n in (1, 2, 3)]


def taken(chosen: int, scores: dict[int, float]) -> Decision:
    """What the scheduler would say: jobs with their scores; those of two GPUs do not suffice."""
    candidates = tuple(
        Candidate(
            job_id=number,
            run=1,
            node="n",
            demand=SPECS[number].resources,
            node_free=Resources(),
            size=0.0,
            grace_period=timedelta(),
            score=score,
            preempted_for_trial=0,
            sufficient=number == 1,
            chosen=number == chosen,
        )
        for number, score in scores.items()
    )
    return Decision(
        trial_job_id=4,
        node="n",
        demand=SPECS[4].resources,
        rule="fitgpp",
        s=4,
        cap=1,
        max_size=0.0,
        max_grace_period=timedelta(),
        considered=3,
        candidates=candidates,
    )


def test_scores_are_those_of_the_formulas() -> None:
    scores = recompute(4, 9, SPECS, {"n": NODE}, STORY, s=4, cap=1)
    small = (2 / 64 + 4 / 64) ** 0.5 / (2 / 64 + 16 / 64) ** 0.5
    assert {s.job: pytest.approx(s.score, abs=1e-12) for s in scores} == {1: 1 + 2, 2: small + 4, 3: small + 1}
    assert [s.job for s in scores if s.fits] == [1]  # none is free, so two GPUs are not enough
    right = {1: 3.0, 2: small + 4, 3: small + 1}
    assert disagreements(taken(1, right), scores) == []
    assert "1 has the least score" in "; ".join(disagreements(taken(3, right), scores))
    assert "job 2 has score" in "; ".join(disagreements(taken(1, {**right, 2: small + 4 + 1e-8}), scores))
    assert "considered runs" in "; ".join(disagreements(taken(1, {1: 3.0, 3: small + 1}), scores))


def test_who_left_or_was_told_to_leave_is_no_candidate() -> None:
    told = JobEvent(job_id=1, time=None, kind=JobEventKind.PREEMPTED, run=1, node="n", commit_no=5)
    ended = JobEvent(job_id=2, time=None, kind=JobEventKind.ENDED, run=1, node="n", commit_no=9)
    scores = recompute(4, 9, SPECS, {"n": NODE}, [*STORY, told, ended], s=4, cap=1)
    assert [(s.job, s.fits) for s in scores] == [(3, True)]  # what job 2 had is free


# ---- Ctrl-C ------------------------------------------------------------------------------------------------------------


def belonging_to(folder: Path) -> list[str]:
    """Processes that have this folder in their command line or environment, or work in it."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            said = " ".join(process.cmdline())
            where: list[str] = [said, *process.environ().values(), process.cwd()]
            if any(str(folder) in text for text in where) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(said)
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary ones that everybody can pass through, as the user does who runs PostgreSQL for root."""
    folder = Path(tempfile.mkdtemp(prefix="ebb-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


MOMENTS = random.Random(20)
"""In seconds: while Python starts, the database is made, nodes join, jobs train, trials arrive."""


@pytest.mark.parametrize(
    ("show", "upto"),
    [
        ("preemption", 0.6),
        ("preemption", 5.0),
        *(pytest.param("preemption", upto, marks=pytest.mark.long) for upto in (2.5, 9.0, 16.0)),
        ("allox", 4.0),  # the jobs are measured
        pytest.param("allox", 25.0, marks=pytest.mark.long),
    ],
)
def test_ctrl_c_leaves_nothing(place: Path, show: str, upto: float) -> None:
    moment, again = MOMENTS.uniform(upto / 2, upto), MOMENTS.uniform(0.1, 1.0)
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--show", show],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        # Not before it listens: how long an interpreter needs to come up is not the demo's to say.
        while not _listens(demo.pid) and demo.poll() is None:
            time.sleep(0.01)
        time.sleep(moment)
        demo.send_signal(signal.SIGINT)
        time.sleep(again)
        if demo.poll() is None:
            demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 130, f"after {moment:.2f} s and {again:.2f} s: {said}"
    assert belonging_to(place) == []
    assert list(place.iterdir()) == [], said
    assert "Traceback" not in said


@pytest.mark.parametrize("reads", ["pipe", "terminal"])
def test_when_nobody_reads_any_more_it_ends_and_leaves_nothing(place: Path, reads: str) -> None:
    """As in `make demo | head`, and where its terminal is closed; with settings for another cluster in the environment."""
    ours, its = os.openpty() if reads == "terminal" else os.pipe()
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.demo"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(place), "TERM": "xterm", "EBB_TLS_CA": "/none", "EBB_SCHEDULER_POLICY": "none"},
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    os.close(its)
    try:
        said, awaited = b"", b"wav2vec" if reads == "terminal" else b"hold all 16 GPUs, and another one waits"
        while awaited not in said:
            said += os.read(ours, 65536)
        os.close(ours)
        if reads == "terminal":  # which is not its controlling one here, so that the kernel does not say so
            demo.send_signal(signal.SIGHUP)
        _, errors = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode in ((1,) if reads == "pipe" else (1, 128 + signal.SIGHUP)), errors  # what it notices first
    assert belonging_to(place) == []
    assert list(place.iterdir()) == [], errors


STOPS = """
import sys
from examples.demo import __main__ as demo, play
from examples.demo.stopping import Stopped

def perform(*_):
    print("not yet written")
    raise Stopped(1)

play.perform, sys.argv = perform, ["demo"]
sys.exit(demo.main())
"""


def test_where_a_signal_and_the_end_of_the_reader_come_together_the_status_is_the_signals() -> None:
    ours, its = os.pipe()
    os.close(ours)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        command = [sys.executable, "-c", STOPS]
        ended = subprocess.run(command, cwd=Path(__file__).parents[2], env=buffered, stdout=its, check=False)
    finally:
        os.close(its)
    assert ended.returncode == 128 + signal.SIGHUP


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / STEP_LOG
    assert last_step(tmp_path) == 0
    log.write_text('{"job": 4, "ru')
    assert last_step(tmp_path) == 0
    log.write_text('{"job": 4, "run": 1, "step": 7}\n{"job": 4, "run": 1,')
    assert last_step(tmp_path) == 7


def test_its_help_runs_nothing() -> None:
    command = [sys.executable, "-m", "examples.demo", "--help"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: make demo [-h]" in done.stdout
    assert "a trial displaces training jobs" in done.stdout
    assert "allox: NumPy jobs" in " ".join(done.stdout.split())


def _listens(pid: int) -> bool:
    """Whether the process handles SIGINT and SIGTERM itself. (Python handles SIGINT from the start.)"""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False
