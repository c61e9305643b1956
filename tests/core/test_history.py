"""How long past runs of a script took, and what follows from that for later jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.messages import Submitted
from scheduler_service.core.model import Configuration, JobSpec
from scheduler_service.core.model.estimates import Estimate, Source
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.operations.estimators import expected_us
from scheduler_service.core.operations.history import LEAST_ERROR, MOST_RUNS, ONE_RUN_ERROR, USER_ERROR, script_of
from tests.core.driver import Driver
from tests.core.test_parking import ROOMY, parked

KEPT = Settings(history_rows=10)


def spec(*command: str, devices: int = 1, estimate: float = 0, **more: object) -> JobSpec:
    of = command or ("python", "train.py", "--epochs", "10")
    return JobSpec(of, Vector(1000, 1024, devices), estimate_us=round(estimate * SECOND), **more)  # type: ignore[arg-type]


def driver(settings: Settings = KEPT) -> Driver:
    d = Driver(settings=settings)
    d.join()
    return d


def ran(d: Driver, of: JobSpec, seconds: int) -> None:
    job = d.submit(of)
    d.start(job)
    d.now += seconds * SECOND
    d.exit(job)


def known(d: Driver, of: JobSpec) -> tuple[Estimate, ...]:
    return d.job(d.submit(of)).estimates


def test_a_run_that_ends_well_while_it_is_parked_is_history_too() -> None:
    d = Driver(settings=KEPT)
    d.join("n1", ROOMY)
    d.exit(parked(d))
    assert len(d.state.history.rows) == 1


# ---- scripts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "sizes"),
    [
        (("python", "train.py"), ()),
        (("python", "train.py", "--epochs", "10", "--lr=0.5"), (10.0, 0.5)),
        (("python", "train.py", "1e3", "-4"), (1000.0, -4.0)),
        (("python", "train.py", "nan", "inf", "10x"), ()),
        (("7", "8"), (8.0,)),
    ],
)
def test_the_numbers_of_a_command_are_its_sizes(command: tuple[str, ...], sizes: tuple[float, ...]) -> None:
    assert script_of(spec(*command))[1] == sizes


def test_scripts_are_told_apart_by_all_but_numbers() -> None:
    script = script_of(spec("python", "a.py", "--n=1"))[0]
    assert script == script_of(spec("python", "a.py", "--n=22"))[0]
    others = [spec("python", "b.py", "--n=1"), spec("python", "a.py", "--m=1"), spec("python", "a.py", "--n", "1")]
    others.append(spec("python", "a.py", "--n=1", working_directory="/elsewhere"))
    assert script not in {script_of(other)[0] for other in others}


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_command_is_a_script(command: list[str]) -> None:
    script, sizes = script_of(spec(*command))
    assert len(script) == 32
    assert len(sizes) < len(command)


# ---- what is kept --------------------------------------------------------------------------------------------------------


def test_one_run_is_a_hint_and_several_are_a_mean() -> None:
    d = driver()
    assert known(d, spec()) == ()
    ran(d, spec(), 100)
    assert known(d, spec()) == (Estimate(0, Source.HISTORY, 100 * SECOND, round(100 * ONE_RUN_ERROR * SECOND)),)
    ran(d, spec(), 110)
    (part,) = known(d, spec())
    assert (part.time_us, part.error_us) == (105 * SECOND, 7071068)
    ran(d, spec(), 105)
    assert known(d, spec())[0].error_us == 5 * SECOND


def test_runs_that_took_equally_long_are_not_taken_for_certain() -> None:
    d = driver()
    for _ in range(3):
        ran(d, spec(), 100)
    assert known(d, spec())[0].error_us == round(100 * LEAST_ERROR * SECOND)


def test_the_time_of_another_size_follows_by_a_line() -> None:
    d = driver()
    for epochs, seconds in ((10, 110), (20, 210), (30, 310)):
        ran(d, spec("python", "train.py", str(epochs), "--seed=1"), seconds)
    (part,) = known(d, spec("python", "train.py", "50", "--seed=1"))
    assert (part.time_us, part.source) == (510 * SECOND, Source.HISTORY)
    assert known(d, spec("python", "train.py", "50", "--seed=2")) == (), "two sizes differ from all that was seen"


def test_a_line_that_ends_below_zero_says_nothing() -> None:
    d = driver()
    for epochs, seconds in ((10, 310), (20, 210), (30, 110)):
        ran(d, spec("python", "train.py", str(epochs)), seconds)
    assert known(d, spec("python", "train.py", "50")) == ()


@pytest.mark.parametrize("other", [spec(devices=2), spec("python", "eval.py")])
def test_other_resources_and_other_scripts_say_nothing(other: JobSpec) -> None:
    d = driver()
    ran(d, spec(), 100)
    assert known(d, other) == ()


def test_other_users_runs_say_nothing() -> None:
    d = driver()
    ran(d, spec(), 100)
    d.step(Submitted("bob", "", spec()))
    assert d.state.jobs.rows[max(d.state.jobs.rows)].estimates == ()


def test_failed_jobs_say_nothing() -> None:
    d = driver()
    job = d.submit(spec())
    d.start(job)
    d.now += SECOND
    d.exit(job, exit_code=1)
    assert not d.state.history.rows


def test_the_users_word_and_the_history_are_weighed_by_their_errors() -> None:
    d = driver()
    for seconds in (90, 100, 110):
        ran(d, spec(), seconds)
    job = d.submit(spec(estimate=200))
    assert [(part.source, part.time_us / SECOND) for part in d.job(job).estimates] == [
        (Source.USER, 200),
        (Source.HISTORY, 100),
    ]
    user, history = 1 / (200 * USER_ERROR) ** 2, 1 / 10**2
    assert expected_us(d.job(job), 0) == round((200 * user + 100 * history) / (user + history) * SECOND)


def test_a_job_that_ran_in_two_configurations_is_kept_for_the_last_one() -> None:
    """Half a minute of the fast configuration's minute did half of the work."""
    d = driver()
    other = Configuration(Vector(2000, 1024, 0), estimate_us=60 * SECOND)
    job = d.submit(spec(estimate=200, alternatives=(other,)))
    row = d.state.jobs.rows[job]
    d.state.put(d.state.jobs, job, with_changes(row, ran_in=(0, 30 * SECOND), ran_us=30 * SECOND))
    d.state.adopt()
    d.start(job)
    d.now += 90 * SECOND
    d.exit(job)
    (history,) = d.state.history.rows.values()
    assert [(run.devices, run.time_us) for run in history.runs] == [(1, 180 * SECOND)]


def test_the_history_of_a_script_and_the_number_of_scripts_are_bounded() -> None:
    d = driver()
    for number in range(MOST_RUNS + 3):
        ran(d, spec(), 1 + number)
    (history,) = d.state.history.rows.values()
    assert [run.time_us for run in history.runs] == [(4 + number) * SECOND for number in range(MOST_RUNS)]
    for number in range(12):
        ran(d, spec(f"./script-{number}"), 1)
        assert len(d.state.history.rows) <= 10
    assert ("ann", script_of(spec("./script-11"))[0]) in d.state.history.rows
    assert ("ann", script_of(spec())[0]) not in d.state.history.rows


def test_nothing_is_kept_unless_a_policy_learns_from_it() -> None:
    d = driver(Settings())
    ran(d, spec(), 100)
    assert not d.state.history.rows


def test_code_that_travels_is_a_part_of_the_script() -> None:
    plain, old, new = (JobSpec(("python", "train.py"), Vector(1), snapshots=which) for which in ((), ("a" * 64,), ("b" * 64,)))
    assert len({script_of(spec)[0] for spec in (plain, old, new)}) == 3
    assert script_of(old) == script_of(JobSpec(("python", "train.py"), Vector(2), snapshots=("a" * 64,)))
