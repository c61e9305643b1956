"""Migrations in the simulator: a policy moves a running job, and what that takes is as configured."""

import pytest

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Migrate, Rng, Spot
from scheduler_service.core.model import RunPhase, StopReason
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from scheduler_service.sim.node_delays import Delays
from scheduler_service.sim.site import Times
from scheduler_service.sim.world import Site, World
from tests.sim.building import Listed, job, node

MINUTE = 60


def moving(state: State, rng: Rng) -> Proposals:
    """Moves the first launch of each job to the other node, once."""
    yield from fifo(state, rng)
    for job_id in sorted(state.active):
        runs = state.runs_of(job_id)
        if job_id not in state.operation_of and all(run.phase is RunPhase.RUNNING and run.run == 1 for run in runs):
            spots = tuple(Spot(3 - run.node, run.devices) for run in runs)
            yield (Migrate(job_id, spots, "a test"),)


def world(delays: Delays, tasks: int = 0, minutes: float = 10) -> World:
    """The policy is asked when the second job comes, after 30 s."""
    jobs = [job(1, minutes, tasks=tasks), job(0, 0.1, at=0.5)]
    made = World(Site((node(2), node(2)), moving, delays=delays), Listed(jobs))
    made.run()
    return made


@pytest.mark.parametrize("tasks", [0, 2])
def test_a_job_works_until_its_destination_is_ready_and_loses_only_what_moving_takes(tasks: int) -> None:
    times = Times(warm=30, checkpoint=5, transfer=1, checkpoint_mb=500, bandwidth_mb=250, resume=2)
    made = world(times.delays(), tasks)
    life = made.lives[1]
    first, second = life.launches
    assert first.why is StopReason.MIGRATED
    assert first.began_us is not None
    assert first.ended_us is not None
    assert first.ended_us - first.began_us == (30 + 30 + 5) * SECOND, "it is ready after 30 s, and saved 5 s later"
    assert second.began_us is not None
    assert second.began_us - first.ended_us == (1 + 2) * SECOND
    assert second.nodes != first.nodes
    end = life.end_us
    assert end == (10 * MINUTE + 5 + 1 + 2 + 2) * SECOND, "saving, sending, beginning and resuming"


def test_a_destination_that_is_not_ready_before_the_work_is_done_is_not_needed() -> None:
    made = world(Times(warm=400).delays(), minutes=1)
    life = made.lives[1]
    assert [launch.why for launch in life.launches] == [None]
    assert life.end_us == MINUTE * SECOND
    assert not made.state.runs.rows


def test_without_delays_a_migration_takes_no_time() -> None:
    made = world(Delays(checkpoint=lambda _rng: 0))
    life = made.lives[1]
    assert life.end_us == 10 * MINUTE * SECOND
    assert len(life.launches) == 2
