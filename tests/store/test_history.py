"""What became of jobs, and how it comes to the simulator."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection

from scheduler_service import store
from scheduler_service.commands.main import main
from scheduler_service.core.model import (
    Array,
    Dependency,
    DependencyKind,
    Elements,
    Job,
    JobClass,
    JobSpec,
    JobState,
    Run,
    RunPhase,
    StopReason,
    TaskGroup,
)
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim import workloads
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads import Csv
from scheduler_service.sim.workloads.assuming import COMMAND
from scheduler_service.store.reading import history
from scheduler_service.store.reading.history import past_jobs
from tests.store import make
from tests.store.make import NODE, SPEC, T

GANG = JobSpec(("x",), Vector(4000, 200, 2), JobClass.TRIAL, 5 * SECOND, gang=(TaskGroup(2, Vector(2000, 100, 1)),))


def at(seconds: float) -> int:
    return T + round(seconds * SECOND)


def ended(job_id: int, seconds: float, **fields: object) -> Job:
    return make.job(job_id, **{"state": JobState.SUCCEEDED, "ended_us": at(seconds), **fields})


def ran(job_id: int, number: int, start: float | None, end: float, stop: float | None = None, task: int = 0) -> Run:
    began = None if start is None else at(start)
    told = {} if stop is None else {"stop_us": at(stop), "stop_reason": StopReason.PREEMPTED, "yielded": True}
    return make.run(job_id, number, task=task, phase=RunPhase.ENDED, started_us=began, ended_us=at(end), **told)


@pytest.fixture
def cluster(writer: Connection, epoch: int) -> None:
    """Jobs of every fate."""
    array = JobSpec(("x",), Vector(), array=Array(2), dependencies=(Dependency(1, DependencyKind.AFTER_ANY),))
    after = JobSpec(
        ("x",),
        Vector(),
        dependencies=(Dependency(2, DependencyKind.AFTER_OK), Dependency(1, DependencyKind.AFTER_OK)),
        vc="vision",
    )
    rows = [
        NODE,
        ended(1, 70),
        ran(1, 1, start=10, end=70),
        ended(2, 150, state=JobState.TIMED_OUT, time_limit_us=80 * SECOND),
        ran(2, 1, start=0, end=40, stop=30),
        ran(2, 2, start=100, end=150),
        ended(3, 90, spec=GANG, user="bob"),
        ran(3, 1, start=10, end=50),
        ran(3, 1, start=12, end=52, task=1),
        ran(3, 2, start=60, end=90),
        ran(3, 2, start=None, end=90, task=1),  # they never came together
        ended(4, 5, state=JobState.CANCELLED),
        make.job(5, state=JobState.RUNNING),
        ended(6, 200, spec=array, elements=Elements(2, 0, 2, 0)),
        ended(7, 199, array_job=6),
        ran(7, 1, start=100, end=101),
        ended(8, 300, spec=after, submitted_us=at(100), priority=3),
        ran(8, 1, start=200, end=201.5),
    ]
    store.commit(writer, epoch, make.new(*rows), [])


@pytest.mark.parametrize("page", [1, 2, 1000])
@pytest.mark.usefixtures("cluster")
def test_a_job_worked_while_its_runs_did(conn: Connection, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(history, "PAGE", page)
    told = {each.job.id: ((each.ready_us - T) / SECOND, each.worked_us / SECOND) for each in past_jobs(conn, 0, 2**63 - 1)}
    assert told == {1: (0, 60), 2: (0, 80), 3: (0, 40), 4: (0, 0), 7: (70, 1), 8: (150, 1.5)}
    assert [each.job.id for each in past_jobs(conn, at(1), at(101))] == [8]
    assert list(past_jobs(conn, at(101), 2**63 - 1)) == []
    assert history.count_live(conn, 0, 2**63 - 1) == 1


def simulated(spec: JobSpec) -> JobSpec:
    """Without what no simulator needs."""
    return replace(spec, command=COMMAND, environment=(), working_directory="")


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["history", *arguments])


@pytest.mark.usefixtures("cluster")
def test_what_ran_is_written_for_the_simulator(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv.gz"
    done = command("--database", database_url, "-o", str(file))
    assert done.exit_code == 0, done.output
    assert done.stderr == "5 jobs; left out: 1 that never ran, 1 that have not ended\n"
    first, second, gang, element, last = workloads.jobs_of(Csv(kind="history", file=file), 1, Path())
    assert first == SimJob(simulated(SPEC), 60 * SECOND, 0, "ada", "")
    assert last.vc == "vision", "or it could not be simulated with virtual clusters"
    assert second.spec.time_limit_us == 88 * SECOND, "it is not to run into its limit again"
    assert (gang.spec, gang.work_us, gang.user) == (simulated(GANG), 40 * SECOND, "bob")
    assert (element.submit_us, last.submit_us, last.spec.priority) == (70 * SECOND, 150 * SECOND, 3)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("cluster")
def test_a_part_of_it_on_standard_output(database_url: str) -> None:
    # T is 2023-11-14T22:13:20.000001
    done = command("--database", database_url, "--since", "2023-11-14T22:14:00", "--until", "2023-11-15")
    assert [row["submit_s"] for row in csv.DictReader(done.stdout.splitlines())] == ["1700000150.000001"]
    assert done.stderr == "1 jobs; left out: 0 that never ran, 0 that have not ended\n"


def test_a_database_that_nobody_has_used(postgres_url: str) -> None:
    done = command("--database", postgres_url)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "ebb-scheduler: no scheduler has used this database yet: it has no jobs\n"


@pytest.mark.usefixtures("cluster")
def test_a_file_that_cannot_be_written(database_url: str, tmp_path: Path) -> None:
    done = command("--database", database_url, "-o", str(tmp_path / "nowhere" / "jobs.csv"))
    file = tmp_path / "nowhere" / "jobs.csv"
    assert (done.exit_code, done.stderr) == (1, f"ebb-scheduler: {file} cannot be written: No such file or directory\n")


def test_a_folder_without_a_database_is_left_as_it_is(tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", tmp_path):
        done = command("--embedded", str(folder))
        assert done.exit_code == 1
        assert done.stderr.startswith(f"ebb-scheduler: there is no database in {folder}: name the folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("since", ["2025-01-02", "2025-01-01"])
def test_a_time_that_has_no_length_is_refused(since: str, tmp_path: Path) -> None:
    done = command("--embedded", str(tmp_path), "--since", since, "--until", "2025-01-01")
    assert done.exit_code == 2
    assert f"--since {since}T00:00:00 must be before --until 2025-01-01T00:00:00" in done.stderr
