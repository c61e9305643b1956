"""The policy of turns alone: whoever finds no idle device takes turns, and jobs of a server change places."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.core.invariants import check
from scheduler_service.core.model import JobState
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.world import Site, World
from tests.sim.building import MINUTE, Listed
from tests.sim.sharing.building import PAPER, ends, job, node


def round_robin(jobs: list[SimJob], *nodes: object, setup: object = PAPER, **own: float) -> World:
    made = stages("round-robin", PreemptionSettings(), own=own)
    return World(Site(nodes, made.policy, order=order_of(made), sharing=setup), Listed(jobs))  # type: ignore[arg-type]


def test_jobs_start_at_once_and_those_that_find_no_device_go_where_the_fewest_are() -> None:
    made = round_robin([job(10) for _ in range(7)], node(2), node(2))
    made.advance(0)
    check(made.state)
    runs = made.state.runs.rows.values()
    users = [sum(run.node == at and index in run.devices for run in runs) for at in (1, 2) for index in (0, 1)]
    assert sorted(users) == [1, 2, 2, 2]


@pytest.mark.parametrize(("rotate", "spread"), [(0, 0.34), (120, 0.03)])
def test_jobs_of_a_server_get_the_same_if_they_change_places(rotate: float, spread: float) -> None:
    """Three jobs on two devices: in two hours each does 80 minutes of work, or one has a device to itself."""
    made = round_robin([job(300) for _ in range(3)], node(2), rotate=rotate)
    while (at := made.next_us()) is not None and at <= 120 * MINUTE:
        made.advance(at)
        check(made.state)
    done = [
        (life.done_us + launch.pace.done_us(120 * MINUTE)) / (120 * MINUTE)
        for life in made.lives.values()
        if (launch := life.launches[-1]).pace is not None
    ]
    assert sum(done) == pytest.approx(2, abs=0.01)
    assert max(done) - 2 / 3 == pytest.approx(spread, abs=0.03)
    assert any(len(life.launches) > 1 for life in made.lives.values()) is bool(rotate)


def test_a_job_that_may_not_take_turns_waits() -> None:
    """A share group has no more rows than the setting says."""
    made = round_robin([job(10), job(10)], node(), rows=1)
    made.run()
    assert ends(made) == [10, 20]


def test_a_node_without_memory_for_what_is_parked_takes_no_more_jobs() -> None:
    small = node()
    small = type(small)(small.capacity._replace(memory_mib=4096), small.levels, small.devices)
    made = round_robin([job(10), job(10)], small)
    made.advance(0)
    assert sorted(one.state.name for one in made.state.jobs.rows.values()) == [JobState.QUEUED.name, JobState.STARTING.name]
    made.run()
    assert ends(made) == [10, 20]


@pytest.mark.parametrize("own", [{"period": 0}, {"rows": 0}, {"packing": 1}])
def test_settings_that_cannot_be_are_refused(own: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(own))):
        stages("round-robin", PreemptionSettings(), own=own)


JOBS = st.lists(
    st.builds(job, st.floats(0.1, 20), st.floats(0, 20), st.just(""), st.integers(1, 2), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


@given(JOBS)
@settings(max_examples=40, deadline=None)
def test_nobody_starves_and_the_invariants_hold_at_each_step(jobs: list) -> None:  # type: ignore[type-arg]
    made = round_robin(jobs, node(2), node(2))
    while (at := made.next_us()) is not None:
        made.advance(at)
        check(made.state)
    assert all(life.end_us is not None and life.done_us == life.job.work_us for life in made.lives.values())
    whole = sum(life.job.work_us for life in made.lives.values())
    assert max(ends(made)) * MINUTE <= 20 * MINUTE + whole + len(jobs), "at least one device works until the end"
