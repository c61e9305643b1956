"""How `ebb` tells of what is done to runs: parks, moves and growth."""

from dataclasses import replace

import pytest

from client_sdk import Client, JobState
from client_sdk.cli.show import _lines
from client_sdk.models import OperationKind, OperationPhase
from tests.sdk.cli.conftest import Run


def test_what_was_done_to_the_tasks_of_a_run_stands_in_their_order(
    run: Run, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit(["sleep"], devices=1)
    run("suspend", "--park", "1")
    run("resume", "1")
    (known,) = client.runs(1)
    gang = [replace(known, run=number, task=task) for number in (2, 1) for task in (0, 1)]
    monkeypatch.setattr(Client, "runs", lambda _self, _job: iter(gang))
    rows = [line.split()[0] for line in run("runs", "1").output.split("\n\n")[1].splitlines()[1:]]
    assert list(dict.fromkeys(rows)) == ["1", "1/1", "2", "2/1"]


def test_a_suspension_is_shown_as_long_as_the_run_has_not_left(run: Run, client: Client) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    run("suspend", "--park", "1")
    job = client.get(1)
    assert (job.state, job.suspend_requested) == (JobState.SUSPENDED, True)
    assert "suspension" not in run("show", "1").output
    assert _lines(replace(job, state=JobState.STOPPING))["suspension"] == "requested"


def test_a_job_of_a_virtual_cluster_shows_which_tasks_are_beyond_its_guarantee(client: Client) -> None:
    job = client.get(client.submit(["sleep"], devices=1))
    spec = replace(job.spec, virtual_cluster="vision")
    (task,) = job.tasks
    tasks = tuple(replace(task, rank=rank, guaranteed=rank < 1) for rank in range(3))
    shown = _lines(replace(job, spec=spec, guaranteed=True, tasks=tasks))
    idle = "idle devices, until somebody has a right to them"
    assert shown["holds"] == f"cells of its virtual cluster; tasks 1,2: {idle}"
    assert _lines(replace(job, spec=spec, guaranteed=True, tasks=tasks[:1]))["holds"] == "cells of its virtual cluster"
    assert _lines(replace(job, spec=spec, guaranteed=False, tasks=tasks[1:]))["holds"] == idle


def test_explain_of_a_parked_job_that_moves_says_so(run: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    run("suspend", "--park", "1")
    assert "it moves" not in run("explain", "1").output
    found = client.explain(1)
    assert found.job.operation is not None
    moves = replace(found.job.operation, kind=OperationKind.MIGRATE, phase=OperationPhase.WARMING)
    told = replace(found, job=replace(found.job, operation=moves), blockers=())
    monkeypatch.setattr(Client, "explain", lambda _self, _job: told)
    assert run("explain", "1").output.endswith("it moves to other devices, where it goes on; `ebb story 1` says where\n")
