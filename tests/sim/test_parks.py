"""Parks in the simulated world: a parked launch does no work, and what it did is not lost."""

import pytest

from benchmarks.measured_delays import times
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Park, Rng, Unpark
from scheduler_service.core.model import JobState, OperationKind, OperationPhase, RunPhase
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.placing.first_fit import place
from scheduler_service.policies.placing.resume_placement import resuming_elsewhere
from scheduler_service.sim.experiments.history import History, Phase
from scheduler_service.sim.experiments.job_outcomes import Launch
from scheduler_service.sim.experiments.metrics import HOUR_US, numbers
from scheduler_service.sim.experiments.results import Lives
from scheduler_service.sim.node_delays import Delays
from scheduler_service.sim.site import Times
from scheduler_service.sim.world import Site
from tests.e2e.paced import note_parks
from tests.sim.building import MINUTE, begins, job, lived, node

DELAYS = Delays(park=lambda _: 6 * SECOND, unpark=lambda _: 12 * SECOND)


def making_way(state: State, rng: Rng) -> Proposals:
    """First come, first served, but a job that waits has one parked that runs; this goes on when nobody waits."""
    yield from fifo(state, rng)
    waits = any(job.state is JobState.QUEUED for job in state.jobs.rows.values())
    if waits and not state.operation_of:
        for one in sorted(state.active):
            if all(run.phase is RunPhase.RUNNING and run.parking is None for run in state.runs_of(one)):
                yield (Park(one, "somebody waits"),)
                break
    for operation in list(state.operations.rows.values()):
        if not waits and operation.phase is OperationPhase.PARKED:
            yield (Unpark(operation.job_id),)


def test_a_parked_job_goes_on_where_it_was_when_its_devices_are_idle() -> None:
    long, short = lived(Site((node(1),), making_way, delays=DELAYS), [job(1, 10), job(1, 2, at=4)])
    (launch,) = long.launches
    parked, resumed = 4 * MINUTE + 6 * SECOND, 6 * MINUTE + 18 * SECOND
    assert (begins(short), short.end_us) == ([parked], parked + 2 * MINUTE)
    assert launch.parked == (parked, resumed)
    assert (long.end_us, launch.worked_us(), long.lost_us) == (10 * MINUTE + resumed - parked, 10 * MINUTE, 0)


def test_what_a_parked_job_does_not_hold_counts_for_others_alone() -> None:
    """The device is always in use, by one job at a time: until the park by the first one, and again while that goes on."""
    lives = lived(Site((node(1),), making_way, delays=DELAYS), [job(1, 10), job(1, 2, at=4)])
    kept = Lives()
    for life in lives:
        kept.add(life)
    released = [(Phase.PARKED, span) for span in kept.released]
    history = History(*kept.tables(), Vector(0, 0, 1), torn=released)
    assert [(span.begin_us, span.end_us) for _, span in released] == [(4 * MINUTE + 6 * SECOND, 6 * MINUTE + 6 * SECOND)]
    assert history.amount_used(2).largest() == 1
    found = dict(numbers(history))
    assert found["utilisation.gpu"] == pytest.approx(1)
    assert found["gpu_h.useful"] * HOUR_US == pytest.approx(12 * MINUTE)
    assert found["gpu_h.ending"] * HOUR_US == pytest.approx(12 * SECOND), "what it takes to go on"
    assert found["gpu_h.idle"] == pytest.approx(0)


def test_a_gang_is_parked_as_one() -> None:
    gang, short = lived(Site((node(1), node(1)), making_way, delays=DELAYS), [job(1, 10, tasks=2), job(1, 2, at=4)])
    assert begins(short) == [4 * MINUTE + 6 * SECOND]
    assert gang.end_us == 10 * MINUTE + 2 * MINUTE + 12 * SECOND


def test_a_parked_job_moves_to_devices_that_are_idle_if_its_own_are_taken() -> None:
    """It is ready in half a minute, saves within its grace period of a minute, and begins a quarter of a minute later."""
    delays = DELAYS._replace(warm=lambda _: 30 * SECOND, transfer=lambda _: 15 * SECOND)
    policy = resuming_elsewhere(making_way, place)
    moved, short, long = lived(Site((node(1), node(1)), policy, delays=delays), [job(1, 10), job(1, 3), job(1, 20, at=1)])
    first, second = moved.launches
    parked, left = MINUTE + 6 * SECOND, 3 * MINUTE + 90 * SECOND
    assert (begins(long), short.end_us) == ([parked], 3 * MINUTE)
    assert (first.nodes, first.worked_us(), first.ended_us) == ((1,), parked, left)
    assert (second.nodes, second.began_us) == ((2,), left + 15 * SECOND)
    assert (moved.end_us, moved.lost_us) == (left + 15 * SECOND + 10 * MINUTE - parked, 0)


def test_work_that_is_done_before_the_park_is_not_parked() -> None:
    long, short = lived(Site((node(1),), making_way, delays=DELAYS), [job(1, 4.05), job(1, 2, at=4)])
    (launch,) = long.launches
    assert (launch.parked, long.end_us) == ((), 4 * MINUTE + 3 * SECOND)
    assert begins(short) == [4 * MINUTE + 3 * SECOND]


def test_the_delays_of_parks_are_measured_from_lives() -> None:
    jobs = [job(1, 10), *(job(1, 2, at=4 + 20 * i) for i in range(1)), job(1, 10, at=30), job(1, 2, at=33)]
    measured = times(lived(Site((node(1),), making_way, delays=DELAYS), jobs))
    assert measured.park is not None
    assert measured.unpark is not None
    assert (measured.park.least(), measured.unpark.least()) == (pytest.approx(6), pytest.approx(12))
    again = Times.model_validate_json(measured.model_dump_json()).delays()
    assert again.park is not DELAYS.park
    assert times([]) == Times()


def test_the_phases_of_a_run_say_what_its_parks_took() -> None:
    launch = Launch((1,), 0, 5)
    park = OperationKind.PARK
    phases = [
        (park, OperationPhase.PARKING, 100, 3, "refused"),
        (park, OperationPhase.PARKING, 110, 4, "cooperative"),
        (park, OperationPhase.PARKED, 114, 50, ""),
        (park, OperationPhase.WAITING, 164, 6, ""),
        (park, OperationPhase.RESUMING, 170, 7, ""),
        (OperationKind.MIGRATE, OperationPhase.PARKING, 200, 9, ""),
    ]
    note_parks(launch, phases, 100)
    assert (launch.park_delays, launch.unpark_delays, launch.parked) == ((4,), (7,), (14, 77))
