"""The mini-batch time of a job that does not count its steps, in `ebb show` and `ebb node show`."""

from datetime import timedelta

import pytest

from client_sdk import MiniBatch, MiniBatchSource, Observations, RunSteps
from client_sdk.testing import FakeCluster
from tests.sdk.cli.conftest import Run

BLACK_BOX = MiniBatch(job_id=1, run=1, time=timedelta(seconds=0.8125), confidence=0.917, source=MiniBatchSource.POWER)


def observe(fake: FakeCluster, *mini_batches: MiniBatch, steps: tuple[RunSteps, ...] = ()) -> None:
    fake.observe("n1", Observations(time=None, steps=steps, mini_batches=mini_batches))


@pytest.fixture(autouse=True)
def job(run: Run) -> None:
    run("submit", "-q", "-g", "1", "sleep")


def test_show_names_the_source_and_the_confidence(fake: FakeCluster, run: Run) -> None:
    observe(fake, BLACK_BOX)
    (line,) = (line for line in run("show", "1").output.splitlines() if line.startswith("mini-batch"))
    assert line.split(maxsplit=1)[1] == "812 ms, by the power of the device, confidence 0.92"


def test_the_steps_of_a_program_say_more(fake: FakeCluster, run: Run) -> None:
    counted = RunSteps(job_id=1, run=1, step=2, mini_batch_time=timedelta(seconds=1.5), measured=2)
    timed = MiniBatch(job_id=1, run=1, time=timedelta(seconds=1.5), confidence=0.99, source=MiniBatchSource.STEPS)
    observe(fake, timed, steps=(counted,))
    (line,) = (line for line in run("show", "1").output.splitlines() if line.startswith("mini-batch"))
    assert line.split(maxsplit=1)[1] == "1.5 s, of 2 steps"


def test_node_show_has_a_row_for_each_run(fake: FakeCluster, run: Run) -> None:
    observe(fake, BLACK_BOX, MiniBatch(job_id=2, run=1, time=timedelta(seconds=1), source=MiniBatchSource.STEPS))
    lines = run("node", "show", "n1").output.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("RUN"))
    assert lines[at].split() == ["RUN", "MINI-BATCH", "CONFIDENCE", "SOURCE"]
    assert lines[at + 1].split() == ["1.1", "812", "ms", "0.92", "POWER"]
    assert lines[at + 2 :] == [], "job 2 does not run there"
