"""The policy by which jobs take turns: rows in which everybody executes that can."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.invariants import check
from scheduler_service.core.model import JobState, RunKey
from scheduler_service.policies.options import Options
from scheduler_service.policies.stages import stages
from scheduler_service.sim.policies.ousterhout import Member, rows_of
from scheduler_service.sim.policies.round_robin import stages as round_robin
from scheduler_service.sim.world import Site, World
from tests.sim.building import MINUTE, FitGppSettings, Listed
from tests.sim.sharing.building import PAPER, TURNS, ends, job, node, world

DEVICES = st.frozensets(st.tuples(st.integers(1, 2), st.integers(0, 3)), min_size=1, max_size=4)
MEMBERS = st.lists(DEVICES, min_size=1, max_size=8).map(
    lambda sets: [Member((RunKey(number, 1),), devices) for number, devices in enumerate(sets, 1)]
)


@given(MEMBERS)
def test_rows_have_everybody_and_no_device_twice(members: list[Member]) -> None:
    devices = {member.runs[0]: member.devices for member in members}
    rows = rows_of(members)
    assert {key for row in rows for key in row.runs} == set(devices)
    for row in rows:
        assert all(devices[a].isdisjoint(devices[b]) for a, b in combinations(row.runs, 2))
        taken = frozenset().union(*(devices[key] for key in row.runs))
        assert all(key in row.runs or devices[key] & taken for key in devices), "whoever could execute does"
    busiest = max(sum(device in each for each in devices.values()) for device in frozenset().union(*devices.values()))
    assert len(rows) >= busiest
    assert rows_of(reversed(members)) == rows


def test_jobs_start_at_once_and_those_that_find_no_device_go_where_the_fewest_are() -> None:
    made = World(Site((node(2), node(2)), TURNS, sharing=PAPER), Listed([job(10) for _ in range(7)]))
    made.advance(0)
    check(made.state)
    runs = made.state.runs.rows.values()
    users = [sum(run.node == at and index in run.devices for run in runs) for at in (1, 2) for index in (0, 1)]
    assert sorted(users) == [1, 2, 2, 2]


def test_a_job_that_may_not_take_turns_waits() -> None:
    """No more users are allowed for a device; and a gang takes turns with nobody who is there already."""
    few = round_robin(Options(own={"users": 1})).policy
    assert ends(world([job(10), job(10)], node(), policy=few)) == [10, 20]
    assert ends(world([job(10), job(10, at=1, tasks=2)], node(2))) == [10, 20]


def test_a_node_without_memory_for_what_is_parked_takes_no_more_jobs() -> None:
    small = node()
    small = type(small)(small.capacity._replace(memory_mib=4096), small.levels, small.devices)
    made = World(Site((small,), TURNS, sharing=PAPER), Listed([job(10), job(10)]))
    made.advance(0)
    assert sorted(one.state.name for one in made.state.jobs.rows.values()) == [JobState.QUEUED.name, JobState.STARTING.name]
    made.run()
    assert ends(made) == [10, 20]


def test_settings_that_cannot_be_are_refused() -> None:
    for own in ({"slice": 0}, {"users": 0}, {"turns": 1}):
        with pytest.raises(ValueError, match=next(iter(own))):
            stages("round-robin", FitGppSettings(), own=own)


JOBS = st.lists(
    st.builds(job, st.floats(0.1, 20), st.floats(0, 20), st.just(""), st.integers(1, 2), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


@given(JOBS)
@settings(max_examples=40, deadline=None)
def test_nobody_starves_and_the_invariants_hold_at_each_step(jobs: list) -> None:  # type: ignore[type-arg]
    made = World(Site((node(2), node(2)), TURNS, sharing=PAPER), Listed(jobs))
    while (at := made.next_us()) is not None:
        made.advance(at)
        check(made.state)
    assert all(life.end_us is not None and life.done_us == life.job.work_us for life in made.lives.values())
    whole = sum(life.job.work_us for life in made.lives.values())
    assert max(ends(made)) * MINUTE <= 20 * MINUTE + whole + len(jobs), "at least one device works until the end"
