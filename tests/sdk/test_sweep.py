"""Sweeps in the fake cluster: turns, promotion, the budget, and what a search is told."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk import AlreadyExists, InvalidArgument, JobState, ShareMode, training
from client_sdk.sweep import Member, Report, Sweep
from client_sdk.testing import FakeCluster, cluster
from client_sdk.training.sweep import MARK, VARIABLE, read
from tests.store.waiting import wait_for

LIMIT = 30.0
COMMAND = ["python", "train.py"]


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with cluster(by_hand=True) as made:
        yield made


def sweep_of(fake: FakeCluster, **options: Any) -> Sweep:
    return Sweep(fake.client(), COMMAND, **{"name": "rates", "slots": 2, "turn": 0, **options})


def says(fake: FakeCluster, member: Member, step: int, value: float) -> None:
    fake.write(member.job, f"epoch\n{MARK}{json.dumps({'step': step, 'value': value})}\n")


def heard(sweep: Sweep, *reports: tuple[int, int, float]) -> None:
    """Waits until the sweep has heard these, in their order for each member."""
    found: list[Report] = []
    wait_for(lambda: found.extend(sweep.look(0.05)) or len(found) >= len(reports), LIMIT)
    assert sorted(found) == sorted(Report(*one) for one in reports)


def states(sweep: Sweep) -> list[JobState]:
    sweep.look(0)
    return [member.job.state for _, member in sorted(sweep.members.items())]


def running(fake: FakeCluster, sweep: Sweep, count: int) -> list[Member]:
    members = [sweep.suggest({"rate": 10.0**-number}) for number in range(count)]
    for member in members:
        fake.start(member.job)
    sweep.look(0)
    return members


# ---- in a script -----------------------------------------------------------------------------------------------------------


def test_a_script_reads_its_parameters_and_reports(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert training.parameters(rate=0.1, layers=2) == {"rate": 0.1, "layers": 2}
    monkeypatch.setenv(VARIABLE, '{"rate": 0.5}')
    assert training.parameters(rate=0.1, layers=2) == {"rate": 0.5, "layers": 2}
    training.report(0.25, 7)
    training.report(math.nan, step=8)
    monkeypatch.setenv("RANK", "1")
    training.report(0.5, 9)
    said = capsys.readouterr().out.splitlines()
    assert [read(line) for line in said[:1]] == [(7, 0.25)]
    assert read(said[1]) == (8, pytest.approx(math.nan, nan_ok=True))
    assert len(said) == 2, "rank 1 reports nothing"
    with pytest.raises(ValueError, match="step=-1 is negative"):
        training.report(0.5, -1)


@pytest.mark.parametrize("line", ["loss 3", MARK, MARK + "3", MARK + "{}", MARK + '{"step": "a", "value": 1}', MARK + "[1]"])
def test_a_line_that_is_no_report(line: str) -> None:
    assert read(line) is None


# ---- members ---------------------------------------------------------------------------------------------------------------


def test_a_member_is_a_job_with_its_parameters(fake: FakeCluster) -> None:
    sweep = sweep_of(fake, devices=1, env={"A": "b"})
    member = sweep.suggest({"rate": 0.5})
    spec = member.job.spec
    assert (spec.name, spec.command, spec.resources.devices) == ("rates-0", tuple(COMMAND), 1)
    assert spec.environment == {"A": "b", VARIABLE: '{"rate": 0.5}'}
    assert sweep.suggest({"rate": 0.5}, 0) is member
    assert len(fake.jobs) == 1


def test_members_may_share_their_gpu(fake: FakeCluster) -> None:
    member = sweep_of(fake, devices=0.5, share="sliced").suggest({"rate": 0.5})
    spec = member.job.spec
    assert (spec.gpu_fraction_ppm, spec.share) == (500_000, ShareMode.SLICED)


def test_reports_come_in_the_order_of_their_steps_over_the_runs_of_a_job(fake: FakeCluster) -> None:
    sweep = sweep_of(fake)
    (member,) = running(fake, sweep, 1)
    says(fake, member, 10, 0.5)
    says(fake, member, 20, 0.4)
    heard(sweep, (0, 10, 0.5), (0, 20, 0.4))
    trial = fake.client().submit(["true"], job_class="trial")
    fake.preempt(member.job, for_=trial)
    fake.start(member.job)
    says(fake, member, 20, 0.4)  # after its checkpoint
    says(fake, member, 30, 0.3)
    heard(sweep, (0, 30, 0.3))
    assert (member.value, [report.step for report in member.reports]) == (0.3, [10, 20, 30])


def test_a_script_that_is_started_again_goes_on_with_its_jobs(fake: FakeCluster) -> None:
    first = sweep_of(fake)
    (member,) = running(fake, first, 1)
    says(fake, member, 1, 0.5)
    heard(first, (0, 1, 0.5))
    second = sweep_of(fake)
    again = second.suggest({"rate": 1.0})
    assert again.job.id == member.job.id
    heard(second, (0, 1, 0.5))
    with pytest.raises(AlreadyExists):
        sweep_of(fake).suggest({"rate": 2.0})


def test_the_best_are_promoted(fake: FakeCluster) -> None:
    sweep = sweep_of(fake, slots=3, priority=5)
    members = running(fake, sweep, 3)
    for member, value in zip(members, (0.3, 0.1, 0.2), strict=True):
        says(fake, member, 1, value)
    heard(sweep, (0, 1, 0.3), (1, 1, 0.1), (2, 1, 0.2))
    assert [member.number for member in sweep.promote(2)] == [1, 2]
    assert [job.priority for job in fake.jobs] == [5, 15, 15]
    says(fake, members[0], 2, 0.05)
    heard(sweep, (0, 2, 0.05))
    assert [member.number for member in sweep.promote(2)] == [0, 1]
    assert [job.priority for job in fake.jobs] == [15, 15, 5]
    up = sweep_of(fake, name="up", direction="maximize")
    assert [member.number for member in up.promote(2)] == []


def test_a_promoted_member_that_shares_a_device_has_one_alone_from_its_next_run_on(fake: FakeCluster) -> None:
    sweep = sweep_of(fake, devices=0.5)
    members = running(fake, sweep, 2)
    for member, value in zip(members, (0.3, 0.1), strict=True):
        says(fake, member, 1, value)
    heard(sweep, (0, 1, 0.3), (1, 1, 0.1))
    assert [member.number for member in sweep.promote(1)] == [1]
    assert [job.share_next for job in fake.jobs] == [None, ShareMode.EXCLUSIVE]
    sweep.promote(1)
    assert [job.priority for job in fake.jobs] == [0, 10]
    says(fake, members[0], 2, 0.05)
    heard(sweep, (0, 2, 0.05))
    sweep.promote(1)
    assert [job.share_next for job in fake.jobs] == [ShareMode.EXCLUSIVE, None], "and no more if another one is better"


def test_members_take_turns_and_a_promoted_one_keeps_its_place(fake: FakeCluster) -> None:
    sweep = sweep_of(fake, slots=2, live=4)
    members = running(fake, sweep, 4)
    sweep.take_turns()
    for number in (2, 3):
        fake.finish(members[number].job, 143)
    assert states(sweep) == [JobState.RUNNING, JobState.RUNNING, JobState.SUSPENDED, JobState.SUSPENDED]
    for number in (0, 1):
        says(fake, members[number], 1, 0.1 + number)
    heard(sweep, (0, 1, 0.1), (1, 1, 1.1))
    sweep.promote(1)
    sweep.take_turns()
    fake.finish(members[1].job, 143)
    assert states(sweep) == [JobState.RUNNING, JobState.SUSPENDED, JobState.QUEUED, JobState.SUSPENDED]
    fake.start(members[2].job)
    says(fake, members[2], 1, 5.0)
    heard(sweep, (2, 1, 5.0))
    sweep.take_turns()
    fake.finish(members[2].job, 143)
    assert states(sweep)[3] is JobState.QUEUED, "each of those that wait has its turn"
    assert [member.has_turn for member in members] == [True, False, False, True]


def test_a_turn_lasts_for_a_while_but_for_the_first(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(fake, slots=1, live=2, turn="1m")
    members = [sweep.suggest({"rate": 1.0}), sweep.suggest({"rate": 2.0})]
    sweep.take_turns()
    assert [member.has_turn for member in members] == [True, False]
    fake.start(members[0].job)
    says(fake, members[0], 1, 0.5)
    heard(sweep, (0, 1, 0.5))
    sweep.take_turns()
    assert [member.has_turn for member in members] == [False, True], "the first turn is over with a report"
    fake.finish(members[0].job, 143)
    fake.start(members[1].job)
    members[1].turns = 1
    says(fake, members[1], 1, 0.5)
    heard(sweep, (1, 1, 0.5))
    sweep.take_turns()
    assert members[1].has_turn
    members[1].seconds += 60
    sweep.take_turns()
    assert [member.has_turn for member in members] == [True, False]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slots": 0}, "slots=0 and live=None"),
        ({"slots": 2, "live": 1}, "slots=2 and live=1"),
        ({"slots": 2, "exclusive": 3}, "exclusive=3 must be between 0 and slots=2"),
        ({"slots": 2, "live": 3, "exclusive": 2}, "take 1 at most"),
        ({"direction": "up"}, "direction='up' is unknown"),
        ({"name": ""}, "name= is missing"),
        ({"name": "my rates"}, "name='my rates': the name of a sweep"),
        ({"budget": "3"}, "has no unit"),
        ({"turn": -1}, "is negative"),
    ],
)
def test_what_cannot_be_is_refused(fake: FakeCluster, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        sweep_of(fake, **options)


def test_a_block_that_fails_leaves_nothing_behind(fake: FakeCluster) -> None:
    with suppress(KeyError), sweep_of(fake) as sweep:
        sweep.suggest({"rate": 1.0})
        raise KeyError
    assert [job.state for job in fake.jobs] == [JobState.CANCELLED]


# ---- searches --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def auto() -> Iterator[FakeCluster]:
    """Jobs start, and leave when they are told to, by themselves."""
    with cluster(script=lambda _: None) as made:
        yield made


class Rates:
    """Suggests so many, and has those killed that report more than 1."""

    def __init__(self, count: int) -> None:
        self.left = list(range(count))
        self.over: dict[int, tuple[bool, JobState, float]] = {}

    def suggest(self) -> tuple[int, Mapping[str, Any]] | None:
        if not self.left:
            return None
        number = self.left.pop(0)
        return number, {"rate": number}

    def reported(self, report: Report) -> bool:
        return report.value > 1

    def ended(self, member: Member) -> None:
        self.over[member.number] = member.killed, member.job.state, member.value


def training_of(
    fake: FakeCluster, sweep: Sweep, value: Callable[[int], float], ends: Callable[[Member], bool], exit_code: int = 0
) -> Callable[[], bool]:
    """What all members do between two looks: each run reports once, and ends if `ends` says so. NaN: it reports nothing."""
    reported: set[tuple[int, int]] = set()

    def between() -> bool:
        for member in sweep.members.values():
            job = fake.jobs[member.job.id - 1]
            if job.state is not JobState.RUNNING:
                continue
            if (job.id, job.run) not in reported:
                reported.add((job.id, job.run))
                if not math.isnan(value(member.number)):
                    says(fake, member, job.run, value(member.number))
            elif not member.killed and ends(member):
                fake.finish(job, exit_code)
        return False

    return between


def test_a_search_is_asked_and_told(auto: FakeCluster) -> None:
    search, sweep, values = Rates(4), sweep_of(auto), (3.0, 0.5, 2.0, 0.25)
    between = training_of(auto, sweep, values.__getitem__, lambda member: bool(member.reports) and member.value <= 1)
    best = sweep.run(search, between)
    assert [member.number for member in best] == [3, 1, 2, 0]
    assert search.over == {
        0: (True, JobState.CANCELLED, 3.0),
        1: (False, JobState.SUCCEEDED, 0.5),
        2: (True, JobState.CANCELLED, 2.0),
        3: (False, JobState.SUCCEEDED, 0.25),
    }


def test_new_configurations_begin_while_others_wait(auto: FakeCluster) -> None:
    """Four configurations that never end are all looked at in one slot, and more than once."""
    search, sweep = Rates(4), sweep_of(auto, slots=1, live=4)
    between = training_of(auto, sweep, lambda _: 1.0, lambda _: False)

    def until() -> bool:
        assert sum(job.state is JobState.RUNNING for job in auto.jobs) <= 1
        between()
        return len(sweep.members) == 4 and all(len(member.reports) >= 2 for member in sweep.members.values())

    sweep.run(search, until)
    assert {number: over[:2] for number, over in search.over.items()} == dict.fromkeys(range(4), (True, JobState.CANCELLED))


def test_a_budget_that_is_spent_ends_the_sweep(auto: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    search, sweep = Rates(1000), sweep_of(auto, budget="1000s")
    clock = count(0, 100)
    monkeypatch.setattr("client_sdk.sweep._sweep.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    sweep.run(search, training_of(auto, sweep, lambda _: 0.9, lambda member: bool(member.reports)))
    assert 1000 <= sweep.seconds < 1000 + 400
    assert 2 <= len(sweep.members) < 100
    assert not [job for job in auto.jobs if not job.ended]


# ---- Optuna ----------------------------------------------------------------------------------------------------------------


def space(trial: Any) -> dict[str, float]:
    return {"rate": trial.suggest_float("rate", 0.0, 1.0)}


def study_of(folder: Path, pruner: Any = None) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / "journal")))
    sampler = optuna.samplers.RandomSampler(seed=1)
    return optuna.create_study(storage=storage, study_name="study", load_if_exists=True, sampler=sampler, pruner=pruner)


@pytest.mark.usefixtures("training_packages")
def test_a_study_of_optuna(auto: FakeCluster, tmp_path: Path) -> None:
    """ASHA by Optuna's own pruner: of those that reach a rung, the worse half is pruned."""
    import optuna
    from optuna.trial import TrialState

    from client_sdk.sweep.optuna import OptunaSearch

    study = study_of(tmp_path, optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2))
    sweep = sweep_of(auto, slots=1)
    sweep.run(OptunaSearch(study, space, 4), training_of(auto, sweep, float, lambda member: bool(member.reports)))
    trials = study.trials
    assert [trial.params for trial in trials] == [dict(sweep.members[number].parameters) for number in range(4)]
    assert [trial.state for trial in trials] == [TrialState.COMPLETE, *[TrialState.PRUNED] * 3]
    assert [trial.intermediate_values for trial in trials] == [{1: float(number)} for number in range(4)]
    assert study.best_trial.number == 0


@pytest.mark.usefixtures("training_packages")
def test_a_study_that_was_interrupted_goes_on_with_its_jobs(auto: FakeCluster, tmp_path: Path) -> None:
    from optuna.trial import TrialState

    from client_sdk.sweep.optuna import OptunaSearch

    found = OptunaSearch(study_of(tmp_path), space, 2).suggest()
    assert found is not None
    member = sweep_of(auto).suggest(found[1], found[0])
    search, sweep = OptunaSearch(study_of(tmp_path), space, 2), sweep_of(auto)
    between = training_of(auto, sweep, (0.5, math.nan).__getitem__, lambda one: bool(one.number or one.reports))
    sweep.run(search, between)
    assert sweep.members[0].job.id == member.job.id
    assert [trial.state for trial in search.study.trials] == [TrialState.COMPLETE, TrialState.FAIL]
    assert search.study.best_value == 0.5
