"""`make demo SHOW=allox`: its devices, its estimates, its policy `shortest`, its tables, and one policy on real processes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from itertools import permutations
from pathlib import Path

import pytest
from rich.console import Console

from client_sdk import Dependency, Job, JobReason, JobState
from examples.demo.__main__ import arguments
from examples.demo.allox.estimates import JOBS_OF_EACH, LONGEST, SHORTEST, Pace, Role, drawn, measure
from examples.demo.allox.machine import Device, confined, devices
from examples.demo.allox.play import Show, spec
from examples.demo.allox.report import Outcome, Run, least_average, report, tell_devices, tell_estimates
from examples.demo.allox.shortest import stages
from examples.demo.allox.work import WORK, run
from examples.demo.stage import Failed, why
from examples.demo.stopping import Stopping
from scheduler_service.core.messages import Accepted, Submitted
from scheduler_service.core.model import Configuration, JobSpec, Reason
from scheduler_service.core.model import JobState as State
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.chosen_stages import order_of
from scheduler_service.policies.options import Options, PreemptionSettings
from tests.core.driver import Driver

ROOT = Path(__file__).parents[2]
BOTH = devices(range(4))


def role(name: str, wide: float, narrow: float) -> Role:
    return Role(name, "matmul", 7, {"wide": wide, "narrow": narrow})


def text(said: StringIO) -> str:
    return " ".join(said.getvalue().split())


def console() -> tuple[Console, StringIO]:
    said = StringIO()
    return Console(file=said, width=80), said


# ---- devices -----------------------------------------------------------------------------------------------------------


def test_devices_are_disjoint_cpu_sets_with_as_many_threads() -> None:
    wide, narrow = devices([9, 4, 7, 5])
    assert (wide.name, wide.cpus, narrow.name, narrow.cpus) == ("wide", {5, 7, 9}, "narrow", {4})
    assert (wide.environment["OMP_NUM_THREADS"], narrow.environment["OMP_NUM_THREADS"]) == ("3", "1")
    assert not any("OPENBLAS_CORETYPE" in device.environment for device in (wide, narrow))
    assert len(devices(range(64))[0].cpus) == 8


def test_with_two_cpus_the_narrow_device_is_an_older_processor_and_the_demo_says_so() -> None:
    both = devices([0, 1], "x86_64")
    assert [device.cpus for device in both] == [{1}, {0}]
    assert ["OPENBLAS_CORETYPE" in device.environment for device in both] == [False, True]
    for used, is_told in (both, True), (BOTH, False):
        out, said = console()
        tell_devices(used, out)
        assert ("stands for an older processor" in text(said)) is is_told
        assert ("narrow is 1 CPU (0), without AVX kernels." in text(said)) is is_told


@pytest.mark.parametrize(
    ("cpus", "machine", "said"),
    [([3], "x86_64", "needs 2 CPUs or more .* may use 1"), ([0, 1], "aarch64", "needs 3 CPUs or more on aarch64")],
)
def test_too_few_cpus_are_an_error(cpus: list[int], machine: str, said: str) -> None:
    with pytest.raises(Failed, match=said):
        devices(cpus, machine)


def test_processes_are_confined_only_meanwhile() -> None:
    ask = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    before = subprocess.check_output(ask, text=True)
    one = int(before.split()[0])
    with confined({one}):
        assert subprocess.check_output(ask, text=True).split() == [str(one)]
    assert subprocess.check_output(ask, text=True) == before


# ---- estimates ---------------------------------------------------------------------------------------------------------

PACES = {
    work: {"wide": Pace(0.25, 0.01), "narrow": Pace(0.25, 0.01 * ratio)}
    for work, ratio in zip(WORK, (4, 2, 1, 0.9), strict=True)
}


def test_jobs_are_as_long_as_asked_for_on_their_faster_device_and_drawn_by_the_seed() -> None:
    roles = drawn(PACES, 3)
    assert {work: sum(one.work == work for one in roles) for work in WORK} == JOBS_OF_EACH
    assert all(SHORTEST - 0.01 <= min(one.estimates.values()) <= LONGEST + 0.01 for one in roles)
    for one in roles:
        assert one.estimates == {name: 0.25 + one.steps * pace.step for name, pace in PACES[one.work].items()}
    assert drawn(PACES, 3) == roles
    assert [one.name for one in drawn(PACES, 4)] != [one.name for one in roles]


def test_each_configuration_asks_for_its_device_with_its_estimate_and_threads(tmp_path: Path) -> None:
    made = spec(role("a", 1.5, 6), BOTH, tmp_path, 17)
    wide, narrow = made.configurations
    assert [one.nodes.labels for one in (wide, narrow)] == [{"device": "wide"}, {"device": "narrow"}]
    assert [one.estimate and one.estimate.total_seconds() for one in (wide, narrow)] == [1.5, 6]
    assert [one.environment["OMP_NUM_THREADS"] for one in (wide, narrow)] == ["3", "1"]
    assert made.dependencies == (Dependency(17),)


def test_the_program_does_the_steps_or_takes_the_time_and_every_kind_of_work_works() -> None:
    done: list[int] = []
    assert run(lambda: done.append(1), 3, 0)[0] == len(done) == 3
    steps, seconds = run(lambda: done.append(1), None, 0.05)
    assert steps == len(done) - 3 > 1
    assert seconds >= 0.05
    for made in WORK.values():
        assert run(made(), None, 0)[0] == 1


# ---- the policy shortest -----------------------------------------------------------------------------------------------

ON_WIDE, ON_NARROW = Vector(1000, 1, 1), Vector(4000, 1, 0)


def driver() -> Driver:
    made = stages(Options(PreemptionSettings()))
    d = Driver(made.policy, order=order_of(made))
    d.join("wide", Vector(1000, 100, 1))
    d.join("narrow", Vector(4000, 100, 0))
    return d


def submit(d: Driver, *times: tuple[int, int]) -> list[int]:
    """Jobs that take so many seconds on the wide and on the narrow node."""
    specs = [
        JobSpec(("x",), ON_WIDE, estimate_us=w * SECOND, alternatives=(Configuration(ON_NARROW, estimate_us=n * SECOND),))
        for w, n in times
    ]
    replies = d.step(*(Submitted("ann", "", one) for one in specs)).replies
    return [reply.job_id for reply in replies if isinstance(reply, Accepted)]


def test_shortest_starts_the_pair_that_takes_least_and_leaves_nothing_idle() -> None:
    d = driver()
    loop, matmul, last = submit(d, (5, 4), (2, 8), (3, 12))
    assert d.states(loop, matmul, last) == [State.STARTING, State.STARTING, State.QUEUED]
    assert [d.job(one).configuration for one in (loop, matmul)] == [1, 0]
    assert d.job(last).reason is Reason.NO_ROOM
    d.start(loop)
    d.start(matmul)
    d.exit(loop)  # now the narrow node alone is idle: the last job starts there, though it takes four times as long
    assert (d.states(last), d.job(last).configuration) == ([State.STARTING], 1)


# ---- tables ------------------------------------------------------------------------------------------------------------

A, B, C = role("a", 2, 8), role("b", 3, 3), role("c", 1, 4)


def outcome(policy: str, late: float = 0, **places: tuple[Role, ...]) -> Outcome:
    """One in which each job begins when the one before it has ended, and takes `late` seconds longer than estimated."""
    runs = []
    for device, roles in places.items():
        at = 0.0
        for one in roles:
            runs.append(Run(one, device, at, at + one.estimates[device] + late))
            at = runs[-1].ended
    return Outcome(policy, tuple(sorted(runs, key=lambda run: run.began)))


FIFO = outcome("fifo", wide=(A, C), narrow=(B,))
ALLOX = outcome("allox", late=0.5, wide=(C, A), narrow=(B,))


def test_averages_are_of_what_was_measured_and_of_what_was_estimated() -> None:
    assert (FIFO.average, FIFO.expected, FIFO.makespan) == pytest.approx(((2 + 3 + 3) / 3, (2 + 3 + 3) / 3, 3))
    assert (ALLOX.average, ALLOX.expected, ALLOX.makespan) == pytest.approx(((1.5 + 4 + 3.5) / 3, (1 + 3 + 3) / 3, 4))


def test_the_least_average_is_that_of_the_best_of_all_schedules() -> None:
    roles = [A, B, C, role("d", 2.5, 2), role("e", 1.5, 6)]
    averages = [
        outcome("", wide=order[:cut], narrow=order[cut:]).average
        for order in permutations(roles)
        for cut in range(len(roles) + 1)
    ]
    assert least_average(roles, BOTH) == pytest.approx(min(averages))


def test_the_report_shows_the_runs_beside_their_estimates() -> None:
    out, said = console()
    report([A, B, C], BOTH, [FIFO, replace(FIFO, policy="shortest"), ALLOX], 12.34, out)
    shown = text(said)
    assert "a wide 2.00 2.00 wide 2.00 2.00 wide 2.50 2.00" in shown
    assert "fifo wide a c fifo narrow b" in shown
    assert "allox 3.00 s 2.33 s 4.00 s 0%" in shown
    assert "kept this machine busy" not in shown
    assert "no schedule has a lower average than 2.33 s" in shown
    assert "first configuration that has room" in shown
    assert "12% higher than under fifo, and 12% higher than under shortest" in shown  # as it is, though it is no praise
    assert "off by 10% on average, and by 50% at most" in shown
    assert max(map(len, said.getvalue().splitlines())) <= 120


def test_a_busy_machine_is_told() -> None:
    out, said = console()
    busy = replace(ALLOX, runs=tuple(replace(run, waited=run.took / 4) for run in ALLOX.runs))
    report([A, B, C], BOTH, [FIFO, busy], 1, out)
    assert "allox 3.00 s 2.33 s 4.00 s 25%" in text(said)
    assert "Other processes kept this machine busy" in text(said)


def test_the_estimates_are_shown_with_their_seed() -> None:
    out, said = console()
    tell_estimates([A, B], BOTH, 5, out)
    assert "a 7 2.00 s 8.00 s 4.00 b 7 3.00 s 3.00 s 1.00" in text(said)
    assert "seed 5" in text(said)


# ---- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--show", "magic"], "invalid choice: 'magic'"),
        (["--seed", "1"], "--seed is for the show allox; preemption draws nothing at random"),
        (["--show", "allox", "--seed", "x"], "invalid int value: 'x'"),
    ],
)
def test_wrong_arguments_are_refused(
    given: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["make demo", *given])
    with pytest.raises(SystemExit):
        arguments()
    assert said in capsys.readouterr().err


PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
"""Without what `make test` tells a make that it runs."""


@pytest.mark.parametrize(
    ("given", "passed"),
    [([], []), (["SHOW=allox"], ["--show", "allox"]), (["SHOW=gandiva"], ["--show", "gandiva"])],
)
def test_make_passes_the_show_on(given: list[str], passed: list[str]) -> None:
    dry = ["make", "--no-print-directory", "--dry-run", "--always-make", "--old-file", ".venv/.ready", "demo", *given]
    assert subprocess.check_output(dry, cwd=ROOT, text=True, env=PLAIN).split()[1:] == ["-m", "examples.demo", *passed]


# ---- real processes ----------------------------------------------------------------------------------------------------


def of_this_machine() -> tuple[Device, Device]:
    """Two CPU sets, also where there is one CPU: the sets need not be disjoint to see the jobs run in them."""
    cpus = sorted(os.sched_getaffinity(0))
    threads: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return Device("wide", frozenset(cpus[-1:]), threads), Device("narrow", frozenset(cpus[:1]), threads)


class NeverStopping(Stopping):
    """Leaves the signals to pytest."""

    def __init__(self) -> None:
        self._asked = 0
        self._listened_to = []


def test_jobs_are_measured_and_then_run_by_allox_on_the_cpus_of_their_devices(folder: Path) -> None:
    both, stopping = of_this_machine(), NeverStopping()
    paces = measure(both, folder / "measured", stopping)
    assert paces.keys() == WORK.keys()
    assert all(pace.step > 0 and pace.start > 0 for devices in paces.values() for pace in devices.values())
    roles = [
        Role("one", "matmul", 3, {"wide": 1, "narrow": 60}),
        Role("two", "matmul", 3, {"wide": 1.5, "narrow": 60}),
        Role("three", "loop", 3, {"wide": 60, "narrow": 1}),
    ]
    out, said = console()
    served = Show(folder / "allox", "allox", both, stopping, out).serve(roles)
    assert [run.role.name for run in served.on("wide")] == ["one", "two"]  # shortest first; the narrow one is left idle
    assert [run.role.name for run in served.on("narrow")] == ["three"]
    assert all(0 <= run.began < run.ended for run in served.runs)
    assert said.getvalue().count("ended on") == 3


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_whole_show() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--show", "allox"], cwd=ROOT, capture_output=True, text=True, timeout=580
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout.count("ended on") == 3 * sum(JOBS_OF_EACH.values())
    assert "Under allox the average completion time was" in done.stdout


def test_a_measurement_that_fails_is_told_with_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.demo.allox.estimates.PROGRAM", [sys.executable, "-c", "raise SystemExit('no NumPy')"])
    with pytest.raises(Failed, match=r"(?s)loop-(wide|narrow) ended with status 1.*no NumPy"):
        measure(of_this_machine(), tmp_path, NeverStopping())


def test_a_job_that_fails_is_told() -> None:
    failed = Job(id=4, spec=spec(A, BOTH, Path("/x"), 1), state=JobState.FAILED, reason=JobReason.EXITED, exit_code=3)
    assert "job 4 a is FAILED (EXITED, exit code 3" in why(failed)
