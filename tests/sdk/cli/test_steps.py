"""The steps of runs, as `ebb show` and `ebb node show` print them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from client_sdk import Client, Observations, RunSteps, StepState
from client_sdk.cli.output import steps as steps_output
from client_sdk.testing import FakeCluster
from tests.sdk.cli.conftest import Run

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = RunSteps(
    job_id=1,
    run=1,
    step=12_345,
    total=100_000,
    since_step=timedelta(seconds=0.2),
    step_rate=3.14159,
    step_rate_error=0.0123,
    step_rate_since_start=2.5,
    mini_batch_time=timedelta(milliseconds=312.4),
    mini_batch_spread=timedelta(milliseconds=4.56),
    measured=188,
    remaining=timedelta(hours=7, minutes=45, seconds=3),
)


def observe(fake: FakeCluster, *steps: RunSteps) -> None:
    fake.observe("n1", Observations(time=NOW, steps=steps))


def shown(run: Run, job: str = "1") -> dict[str, str]:
    lines = [line.split("  ", 1) for line in run("show", job).output.splitlines()]
    return {name: value.strip() for name, value in (line for line in lines if len(line) == 2)}


def test_a_job_is_shown_with_its_steps(run: Run, fake: FakeCluster) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    assert not {"step", "step rate", "mini-batch", "time left"} & set(shown(run))
    observe(fake, FULL)
    lines = shown(run)
    assert lines["step"] == "12,345 of 100,000, running"
    assert lines["step rate"] == "3.14 ± 0.01 steps/s (2.5 since its start)"
    assert lines["mini-batch"] == "312 ms ± 4.56 ms, of 188 steps"
    assert lines["time left"] == "7:45:03"


def test_what_is_not_known_is_left_out(run: Run, fake: FakeCluster) -> None:
    run("submit", "-q", "sleep")
    observe(fake, RunSteps(job_id=1, run=1, step=1))
    lines = shown(run)
    assert lines["step"] == "1, running"
    assert not {"step rate", "mini-batch", "time left"} & set(lines)
    one = RunSteps(job_id=1, run=1, step=2, step_rate=0.5, mini_batch_time=timedelta(seconds=2), measured=1)
    observe(fake, one)
    lines = shown(run)
    assert (lines["step rate"], lines["mini-batch"]) == ("0.5 steps/s", "2 s, of 1 step")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (StepState.EVALUATING, "evaluating"),
        (StepState.SAVING, "saving"),
        (StepState.STALLED, "stalled for 1:30"),
        (StepState.UNSPECIFIED, "in a state that this ebb does not know"),
    ],
)
def test_what_the_program_does(state: StepState, words: str) -> None:
    seen = RunSteps(job_id=1, run=1, step=7, state=state, since_step=timedelta(seconds=90))
    assert steps_output.lines(seen) == {"step": f"7, {words}"}


def test_a_parked_job_shows_how_far_it_was_and_no_time_left(
    run: Run, client: Client, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    observe(fake, replace(FULL, state=StepState.STALLED))
    executes = client.get(1)
    assert shown(run)["step"].startswith("12,345 of 100,000, stalled for ")
    run("suspend", "--park", "1")
    parked = replace(client.get(1), steps=executes.steps)  # as a cluster tells of it
    monkeypatch.setattr(Client, "get", lambda _self, _job: parked)
    lines = shown(run)
    assert lines["step"] == "12,345 of 100,000, parked"
    assert "time left" not in lines


def test_a_gang_has_a_table(run: Run, fake: FakeCluster) -> None:
    run("submit", "-q", "--tasks", "2", "--cpus", "1", "sleep")
    other = RunSteps(job_id=1, run=1, task=1, step=9, state=StepState.SAVING)
    observe(fake, other, FULL)
    assert [line.split() for line in run("show", "1").output.splitlines()[-3:]] == [
        list(steps_output.COLUMNS),
        ["1.1", "12345", "100000", "RUNNING", "3.14", "±", "0.01", "312", "ms", "±", "4.56", "ms", "7:45:03"],
        ["1.1/1", "9", "-", "SAVING", "-", "-", "-"],
    ]


def test_the_tasks_of_a_parked_gang_are_parked_in_its_table(
    run: Run, client: Client, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("submit", "-q", "--tasks", "2", "-g", "1", "sleep")
    observe(fake, RunSteps(job_id=1, run=1, task=1, step=9, state=StepState.STALLED), FULL)
    executes = client.get(1)
    run("suspend", "--park", "1")
    assert client.get(1).parked
    parked = replace(client.get(1), steps=executes.steps)
    monkeypatch.setattr(Client, "get", lambda _self, _job: parked)
    rows = [line.split() for line in run("show", "1").output.splitlines()[-2:]]
    assert [(row[0], row[3], row[-1]) for row in rows] == [("1.1", "PARKED", "-"), ("1.1/1", "PARKED", "-")]


def test_a_node_is_shown_with_the_steps_of_its_runs(run: Run, fake: FakeCluster) -> None:
    run("submit", "-q", "sleep")
    run("submit", "-q", "sleep")
    observe(fake, FULL, RunSteps(job_id=2, run=1, step=9))
    assert run("node", "show", "n1").output.splitlines()[-4:] == [
        "",
        "RUN  STEP   OF      STATE    STEPS/S      MINI-BATCH        LEFT",
        "1.1  12345  100000  RUNNING  3.14 ± 0.01  312 ms ± 4.56 ms  7:45:03",
        "2.1  9      -       RUNNING  -            -                 -",
    ]


def test_json(run: Run, fake: FakeCluster) -> None:
    run("submit", "-q", "sleep")
    assert json.loads(run("show", "1", "-o", "json").output)["steps"] == []
    observe(fake, FULL)
    (steps,) = json.loads(run("show", "1", "-o", "json").output)["steps"]
    assert steps == {
        "job_id": 1,
        "run": 1,
        "task": 0,
        "step": 12345,
        "total": 100000,
        "state": "RUNNING",
        "since_step": 0.2,
        "step_rate": 3.14159,
        "step_rate_error": 0.0123,
        "step_rate_since_start": 2.5,
        "mini_batch_time": 0.3124,
        "mini_batch_spread": 0.00456,
        "measured": 188,
        "remaining": 27903,
    }
    assert json.loads(run("node", "show", "n1", "-o", "json").output)["observations"]["steps"] == [steps]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.5 s"), (90, "90 s"), (12345, "12345 s"), (0.99949, "999 ms"), (0.0123456, "12.3 ms"), (45e-6, "45 µs")],
)
def test_durations(seconds: float, text: str) -> None:
    seen = RunSteps(job_id=1, run=1, step=2, mini_batch_time=timedelta(seconds=seconds), measured=2)
    assert steps_output.lines(seen)["mini-batch"] == f"{text}, of 2 steps"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((123456.7, 12.3, None), "123457 ± 12 steps/s"),
        ((0.0123456, 0.000099, 1.0), "0.0123 ± <0.0001 steps/s (1 since its start)"),
        ((2.0, 0.0, 2.0), "2 ± 0 steps/s (2 since its start)"),
    ],
)
def test_rates(values: Sequence[float | None], text: str) -> None:
    rate, error, start = values
    seen = RunSteps(job_id=1, run=1, step=2, step_rate=rate, step_rate_error=error, step_rate_since_start=start)
    assert steps_output.lines(seen)["step rate"] == text
