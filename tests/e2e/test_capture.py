"""Programs that save in ways of their own, and code and functions that travel: with real processes and a real database."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from client_sdk import FunctionFailed, JobEventKind, JobState
from tests.harness import LIMIT, WHOLE_NODE, Site
from tests.store.waiting import wait_for

COUNTS = """
trap 'cp state "$EBB_CHECKPOINT_DIR/state"; exit 0' USR1
cp "$EBB_CHECKPOINT_DIR/state" state 2>/dev/null || echo 0 >state
echo "begins at $(cat state)"
echo 7 >state
touch "$EBB_RUN_DIR/ready"
[ "$EBB_RUN" = 2 ] || while :; do sleep 0.02; done
"""
BY_TOOL = 'touch "$EBB_RUN_DIR/ready"; [ "$EBB_RUN" = 2 ] && cat "$EBB_CHECKPOINT_DIR/state" || while :; do sleep 0.02; done'


def texts(site: Site, job: int, kind: JobEventKind) -> list[str]:
    return [event.text for event in site.client.story(job) if event.kind is kind]


@pytest.mark.parametrize(
    ("script", "options", "said", "output"),
    [
        (COUNTS, {"checkpoint_signal": "USR1"}, "; it was sent SIGUSR1", "begins at 0\nbegins at 7\n"),
        (
            BY_TOOL,
            {"checkpoint_command": 'echo saved by tool, pid $EBB_PID >"$EBB_CHECKPOINT_DIR/state"'},
            "saved its work and left; its checkpoint command saved its work in",
            "saved by tool, pid ",
        ),
    ],
)
def test_a_program_saves_in_its_own_way_and_goes_on(
    site: Site, script: str, options: dict[str, str], said: str, output: str
) -> None:
    with site.room_for_one():
        victim = site.until(site.submit(["sh", "-c", script], devices=WHOLE_NODE, grace=60, **options), JobState.RUNNING)
        wait_for((site.wait_run_directory(victim) / "ready").exists, LIMIT)
        trial = site.short(job_class="trial", devices=4)
        site.succeeded(trial, victim)
    (text,) = texts(site, victim.id, JobEventKind.VACATED)
    assert said in text
    assert output in "".join(site.client.logs(victim, run=1)) + "".join(site.client.logs(victim))
    assert site.client.get(victim).run == 2


def test_the_code_of_a_repository_travels(site: Site, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text("from helper import word\nimport os\nprint(word, sorted(os.listdir('.')))\n")
    (root / "helper.py").write_text("word = 'hello'\n")
    (root / ".gitignore").write_text("*.bin\n")
    (root / "weights.bin").write_text("large")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    job = site.submit([sys.executable, "-B", "train.py"], snapshot=root)
    site.succeeded(job)
    assert site.output(site.client.get(job)) == "hello ['.gitignore', 'helper.py', 'train.py']\n"
    again = site.submit([sys.executable, "-B", "train.py"], snapshot=root)
    assert again.spec.snapshots == job.spec.snapshots, "it is stored once"
    site.succeeded(again)
    (root / "helper.py").write_text("word = 'changed'\n")
    assert "hello" in site.output(site.client.get(again)), "what was submitted stays what it was"


def divide(a: float, b: float) -> float:
    return a / b


def test_functions(site: Site) -> None:
    def late(path: str) -> int:
        """Waits in its first run, for ever."""
        Path(path).open("a").close()
        while os.environ["EBB_RUN"] == "1":
            time.sleep(0.02)
        return os.getpid()

    gpu = site.client.functions(python=sys.executable, cpus=1, memory=256, grace=0, working_directory=str(Path.cwd()))
    good, bad = gpu.submit(divide, 1, b=4), gpu.submit(divide, 1, 0)
    assert good.result(LIMIT) == 0.25
    assert good.job.spec.name == "divide"
    assert good.done()
    with pytest.raises(ZeroDivisionError) as caught:
        bad.result(LIMIT)
    assert "in divide" in str(caught.value.__cause__)
    assert bad.job.state is JobState.FAILED
    assert "ZeroDivisionError" in site.output(bad.job), "the traceback is in its output, too"
    marker = site.file("late")
    preempted = gpu.submit(late, str(marker))
    wait_for(marker.exists, LIMIT)
    site.client.requeue(preempted.job)
    assert isinstance(preempted.result(LIMIT), int), "a function that was preempted is called again"
    assert preempted.job.run == 2
    cancelled = gpu.submit(late, str(marker))
    site.until(cancelled.job, JobState.RUNNING)
    cancelled.cancel()
    with pytest.raises(FunctionFailed, match="has no result: the job ended as CANCELLED"):
        cancelled.result(LIMIT)
