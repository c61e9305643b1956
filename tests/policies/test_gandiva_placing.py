"""Where jobs start, and who takes turns with whom (Gandiva, Algorithm 1 and Figure 7)."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.messages import Submitted
from scheduler_service.core.model import Configuration, EventKind, JobState, Reason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.sharing.equations import time_share
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.gandiva.slicing.rows import fair_rows, unit_of, units_of
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import spec
from tests.policies.introspected import SERVER, Introspected
from tests.policies.sharing_runs import gang_of, run_on


def test_figure_7_jobs_of_one_size_are_on_servers_of_their_own_and_the_overload_is_balanced() -> None:
    d = Introspected("n1", "n2", "n3", "n4")
    ones = [d.begin() for _ in range(4)]
    two, four = d.begin(2), d.begin(4)
    ones += [d.begin() for _ in range(4)]
    twos = [two, d.begin(2)]
    assert d.nodes_of(*ones[:4], *ones[4:]) == ["n1"] * 4 + ["n4"] * 4
    assert (d.nodes_of(*twos), d.nodes_of(four)) == (["n2", "n2"], ["n3"])
    assert not d.state.share_groups.rows  # nobody is parked while there is room
    ones += [d.begin() for _ in range(4)]
    assert Counter(d.nodes_of(*ones)) == {"n1": 6, "n4": 6}
    assert [d.nodes_of(d.begin(2)), d.nodes_of(d.begin(4))] == [["n2"], ["n3"]]
    assert all(d.job(job).state is JobState.RUNNING for job in d.state.jobs.rows)


def test_a_server_that_empties_is_of_no_affinity() -> None:
    d = Introspected("n1", "n2")
    one = d.begin(1)
    two = d.begin(2)
    assert d.nodes_of(one, two) == ["n1", "n2"]
    d.leaves(one)
    assert d.nodes_of(d.begin(4)) == ["n1"]


def test_a_job_may_be_a_gang_in_another_of_its_configurations() -> None:
    d = Introspected("n1", "n2")
    d.begin(3)
    d.begin(3)
    gang = gang_of(2, 1)
    job = d.submit(with_changes(spec(2), alternatives=(Configuration(gang.demand, gang.gang),)))
    assert (d.job(job).configuration, d.job(job).task_nodes) == (1, (1, 2))


def test_affinity_gives_way_before_anybody_takes_turns() -> None:
    d = Introspected("n1")
    assert d.nodes_of(d.begin(2), d.begin(1), d.begin(1)) == ["n1"] * 3
    assert not d.state.share_groups.rows


def test_six_jobs_on_four_devices_take_turns_and_the_story_says_with_whom() -> None:
    d = Introspected("n1")
    for _ in range(5):
        d.begin()
    job = d.submit(spec(1))
    (group,) = [group for group in d.state.share_groups.rows.values() if any(key.job_id == job for key in group.members())]
    assert group.devices == ((1, (1,)),)
    assert [row.weight for row in group.rows] == [1, 1]
    assert group.period_us == 60 * SECOND
    d.begin()
    assert sorted(len(group.rows) for group in d.state.share_groups.rows.values()) == [2, 2, 2]


def test_the_story_of_a_launch_names_those_with_whom_the_job_takes_turns() -> None:
    d = Introspected("n1")
    whole = d.begin(4)
    taken = d.step(Submitted("ann", "", spec(4)))
    (line,) = [line for line in taken.log if line.kind is EventKind.PLACED]
    assert line.text == (
        f"time-sliced: overload, no server has 4 idle; takes turns with job {whole} on devices 0, 1, 2, 3 of n1 (2 rows)"
    )


def test_a_large_job_takes_turns_with_all_small_ones_at_once() -> None:
    d = Introspected("n1")
    small = [d.begin() for _ in range(4)]
    large = d.begin(4)
    assert d.rows_of(large) == [[large], small]
    assert {time_share(d.group_of(large).rows, d.run(job).key) for job in (*small, large)} == {Fraction(1, 2)}  # type: ignore[union-attr]


def test_idle_devices_of_a_row_are_used_by_others() -> None:
    d = Introspected("n1")
    d.begin(2)
    other = d.begin(2)
    large = d.begin(4)
    first = min(set(d.state.jobs.rows) - {other, large})
    d.leaves(other)
    assert d.rows_of(large) == [[large], [first]]
    again = d.begin(2)
    assert d.rows_of(large) == [[large], [first, again]]


def test_those_who_are_left_have_longer_turns() -> None:
    d = Introspected("n1")
    jobs = [d.begin(4) for _ in range(3)]
    assert d.rows_of(jobs[0]) == [[job] for job in jobs]
    d.leaves(jobs[1])
    assert d.rows_of(jobs[0]) == [[jobs[0]], [jobs[2]]]
    d.leaves(jobs[0])
    assert d.run(jobs[2]).group == 0
    assert not d.state.share_groups.rows


def test_two_small_jobs_that_no_longer_collide_share_nothing() -> None:
    d = Introspected("n1")
    left, right, large = d.begin(2), d.begin(2), d.begin(4)
    assert d.rows_of(left) == [[large], [left, right]]
    d.leaves(large)
    assert not d.state.share_groups.rows
    assert {d.run(left).group, d.run(right).group} == {0}


def test_jobs_take_turns_with_their_equals_alone() -> None:
    """No job is parked for one of lower priority, nor a trial for a best-effort job."""
    d = Introspected("n1")
    d.begin(4)
    lower = d.begin(what=replace(spec(1), priority=-1))
    assert (d.job(lower).state, d.job(lower).reason) == (JobState.QUEUED, Reason.NO_ROOM)
    d.cancel(lower)
    trial = d.begin(what=spec(1, trial=True))
    assert d.job(trial).state is JobState.QUEUED


def why(d: Introspected, job: int) -> str:
    """What `ebb explain` says first."""
    made = stages("gandiva", PreemptionSettings(), own=d.own)
    found = explain(d.state, d.job(job), d.now, Random(0), made)
    return found.blockers[0].detail


def test_explain_says_why_a_job_does_not_take_turns() -> None:
    d = Introspected("n1")
    d.begin(4)
    lower = d.begin(what=replace(spec(1), priority=-1))
    assert "nobody of its class and priority has so many devices" in why(d, lower)
    d = Introspected("n1", oversubscription=1)
    d.begin(4)
    assert "ask for 1 times the devices that it has (oversubscription)" in why(d, d.begin(1))
    d = Introspected("n1", rows=1)
    d.begin(4)
    assert "more than 1 rows, or the devices have no memory left" in why(d, d.begin(1))


def test_over_subscription_and_rows_are_bounded() -> None:
    d = Introspected("n1", oversubscription=2)
    jobs = [d.begin(4) for _ in range(3)]
    assert [d.job(job).state for job in jobs] == [JobState.RUNNING, JobState.RUNNING, JobState.QUEUED]
    d = Introspected("n1", rows=3)
    jobs = [d.begin(4) for _ in range(4)]
    assert [d.job(job).state for job in jobs] == [JobState.RUNNING] * 3 + [JobState.QUEUED]


def test_who_waits_for_a_turn_has_it_when_somebody_leaves() -> None:
    d = Introspected("n1", rows=2)
    jobs = [d.begin(4) for _ in range(3)]
    assert d.job(jobs[2]).state is JobState.QUEUED
    d.leaves(jobs[0])
    assert d.rows_of(jobs[2]) == [[jobs[1]], [jobs[2]]]


def test_what_is_parked_must_fit_into_the_memory_of_the_server() -> None:
    d = Introspected()
    d.join("n1", Vector(64_000, 65_536, 4))  # one device's memory, and not two
    d.begin(1)
    large = d.begin(4)
    assert (d.job(large).state, d.job(large).reason) == (JobState.QUEUED, Reason.NO_ROOM)


def test_a_profile_lets_more_jobs_be_parked() -> None:
    d = Introspected()
    d.join("n1", Vector(64_000, 65_536, 1))
    first = d.begin()
    d.measure({first: 100}, memory=4000)
    profile = d.job(first).profile
    assert profile is not None
    assert (profile.mini_batch_us, profile.memory_mib, profile.utilisation_ppm) == (100_000, 4000, 200_000)
    second = d.begin()
    assert d.rows_of(first) == [[first], [second]]
    assert (d.run(first).device_memory_mib, d.run(first).parked_mib) == (4400, 4400)


def test_a_gang_takes_turns_in_one_row_on_all_of_its_servers() -> None:
    d = Introspected("n1", "n2")
    d.begin(4)
    d.begin(4)
    gang = d.submit(gang_of(2, 4))
    rows = d.rows_of(gang)
    assert rows == [[gang], [1, 2]]
    assert {d.where(gang, task).name for task in (0, 1)} == {"n1", "n2"}
    assert len(d.state.share_groups.rows) == 1


def test_a_new_server_takes_who_waits_and_devices_that_are_faulty_take_nobody() -> None:
    d = Introspected("n1", rows=1)
    d.begin(4)
    job = d.begin(2)
    assert d.job(job).state is JobState.QUEUED
    d.faulty({0: "it is lost"})
    d.join("n2", SERVER)
    assert d.nodes_of(job) == ["n2"]


RUNS = st.lists(st.integers(0, 15).map(lambda mask: mask or 1), min_size=1, max_size=9)


@given(RUNS)
def test_nobody_starves_in_fair_rows(masks: list[int]) -> None:
    """Each unit has a turn, on devices of its own, and rows made from these rows are these rows."""
    runs = [run_on(number, mask) for number, mask in enumerate(masks, 1)]
    rows = fair_rows([unit_of([run]) for run in runs])
    assert fair_rows([unit_of([run]) for run in reversed(runs)]) == rows
    assert all(row.weight > 0 for row in rows)
    for row in rows:
        devices = [device for run in runs if run.key in row.runs for device in run.devices]
        assert len(devices) == len(set(devices)), "two units have a device at the same time"
    for run in runs:
        assert time_share(rows, run.key) > 0
    assert fair_rows(units_of(rows, {run.key: run for run in runs})) == rows
    deepest = max(sum(mask >> index & 1 for mask in masks) for index in range(4))
    assert len(rows) >= deepest
    for run in runs:  # work-conserving: what a row leaves idle is of use to nobody else
        for row in rows:
            busy = {device for other in runs if other.key in row.runs for device in other.devices}
            assert run.key in row.runs or busy & set(run.devices)
