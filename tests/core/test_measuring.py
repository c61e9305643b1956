"""What nodes measure of mini-batches: the latest measurement of a run, and the profile of a job."""

from typing import Any

import pytest

from scheduler_service.core.messages import MiniBatchMeasured, Step
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.profiles import Measured, Profile
from scheduler_service.core.operations.measuring import is_certain
from tests.core.sharing_desk import Sharing, key, row
from tests.core.test_parking import desk as parking_desk
from tests.core.test_parking import parked

MS = 1000


class Desk(Sharing):
    """Job 1 runs on device 0 of n1."""

    def measure(self, job: int = 1, mini_batch_us: int = 100 * MS, after: int = 60, **facts: Any) -> Step:
        run = facts.pop("run", None) or key(job)
        given = {"node": "n1", "count": 20, "confidence_ppm": 900_000, "memory_mib": 4000, "utilisation_ppm": 300_000} | facts
        return self.step(MiniBatchMeasured(key=run, mini_batch_us=mini_batch_us, **given), after=after)

    def measured(self, job: int = 1) -> Measured | None:
        return self.state.measured.rows.get(key(job))

    def profile(self, job: int = 1) -> Profile | None:
        return self.job(job).profile


def desk() -> Desk:
    d = Desk()
    d.alone(0)
    return d


def test_what_is_measured_of_a_run_that_is_alone_is_its_profile() -> None:
    d = desk()
    taken = d.measure()
    assert d.profile() == Profile(100 * MS, 4000, 300_000, 1, "A100", 100 * MS)
    assert {change.table for change in taken.changes} == {"cluster", "job"}, "the measurement itself is not durable"
    measured = d.measured()
    assert measured is not None
    assert (measured.mini_batch_us, measured.settled, is_certain(measured)) == (100 * MS, True, True)


def test_a_profile_is_written_only_when_it_changes_by_more_than_measurements_differ() -> None:
    d = desk()
    d.measure()
    for close in ({"mini_batch_us": 109 * MS}, {"memory_mib": 4300}, {"utilisation_ppm": 340_000}, {"memory_mib": 100}):
        assert {change.table for change in d.measure(**close).changes} == {"cluster"}
    d.measure(mini_batch_us=120 * MS)
    d.measure(mini_batch_us=120 * MS, memory_mib=6000)
    d.measure(mini_batch_us=120 * MS, memory_mib=5000, utilisation_ppm=400_000)
    assert d.profile() == Profile(120 * MS, 6000, 400_000, 1, "A100", 100 * MS), "of the memory, the most"
    d.measure(mini_batch_us=240 * MS, utilisation_ppm=-1, memory_mib=0)
    assert d.profile() == Profile(240 * MS, 6000, 400_000, 1, "A100", 100 * MS), "what is not known now was known before"


@pytest.mark.parametrize("facts", [{"count": 19}, {"confidence_ppm": 400_000}, {"after": 1, "count": 100}])
def test_what_is_not_certain_is_no_profile(facts: dict[str, int]) -> None:
    d = desk()
    d.measure(**facts)
    assert d.measured() is not None
    assert d.profile() is None


@pytest.mark.parametrize(
    "facts", [{"node": "n9"}, {"run": RunKey(1, 2)}, {"run": RunKey(1, 1, 1)}, {"run": RunKey(9, 1)}, {"mini_batch_us": 0}]
)
def test_what_is_said_of_another_run_or_cannot_be_changes_nothing(facts: dict[str, Any]) -> None:
    d = desk()
    assert {change.table for change in d.measure(**facts).changes} == {"cluster"}
    assert not d.state.measured.rows


def test_a_run_that_takes_turns_is_alone_during_its_turn_and_is_measured_for_twice_as_long() -> None:
    d = desk()
    other = d.beside(lambda job: (row(1), row(job)), 0)
    d.start(other)
    assert d.measure().changes
    assert d.profile() is None, "nobody knows how long the run had this plan before the first measurement"
    d.measure(after=3)
    assert d.profile() is None, "2 s of mini-batches take 4 s of half the time"
    d.measure(after=1)
    assert d.profile() is not None


def test_of_a_packed_run_there_is_no_profile_but_a_measurement_for_the_verdict() -> None:
    d = desk()
    other = d.beside(lambda job: (row(1, job),), 0)
    d.start(other)
    d.measure()
    d.measure()
    measured = d.measured()
    assert measured is not None
    assert is_certain(measured)
    assert d.profile() is None


def test_a_change_of_rows_makes_earlier_mini_batches_count_no_more() -> None:
    d = desk()
    other = d.beside(lambda job: (row(1), row(job)), 0)
    d.start(other)
    d.measure()
    d.measure()
    before = d.measured()
    d.exit(other)
    d.measure(after=1)
    after = d.measured()
    assert before is not None
    assert after is not None
    assert (before.settled, after.settled, after.plan) == (True, False, (0, 0))


def test_measurements_end_with_the_run_and_a_new_leader_has_none_and_the_profile() -> None:
    d = desk()
    d.measure()
    assert d.state.rebuild().measured.rows  # what tests rebuild has them: they are undone with a step, as all rows are
    d.exit(1, yielded=True)
    assert not d.state.measured.rows
    assert d.profile() is not None


def test_what_is_said_of_a_parked_run_changes_nothing() -> None:
    d = parking_desk()
    job = parked(d)
    d.step(MiniBatchMeasured("n1", RunKey(job, 1, 0), 100 * MS, 20, 990_000), after=60)
    assert (d.job(job).profile, dict(d.state.measured.rows)) == (None, {})
