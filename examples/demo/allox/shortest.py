"""shortest: of all queued jobs and all configurations that have room now, the one that takes least starts (AlloX's SJF+).

A policy for comparison, which the demo's scheduler registers. It leaves no slot idle that a job could use.
"""

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Rng
from scheduler_service.core.model import JobState
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.configuration_times import ways
from scheduler_service.policies.options import Options
from scheduler_service.policies.placing.first_fit import no_room, place, place_on_earmarks, start_on_earmarks
from scheduler_service.policies.stages import Stages

UNKNOWN = 3600 * SECOND
"""How long a configuration without an estimate is taken to run."""


def stages(_options: Options) -> Stages:
    return Stages(shortest)


def shortest(state: State, _rng: Rng) -> Proposals:
    yield from start_on_earmarks(state, place_on_earmarks)
    refused: set[int] = set()
    while (start := _next_start(state, refused)) is not None:
        if (yield (start,)) is not None:
            refused.add(start.job_id)
    for job_id in _queued(state):
        wait = no_room(state, state.jobs.rows[job_id])
        if wait.reason is not state.jobs.rows[job_id].reason:
            yield (wait,)


def _queued(state: State) -> list[int]:
    ids = (key[-1] for lane in OWN_LANES for key in state.waiting("", lane))
    return sorted(job_id for job_id in ids if state.jobs.rows[job_id].state is JobState.QUEUED)


def _next_start(state: State, refused: set[int]) -> Place | None:
    jobs = (state.jobs.rows[job_id] for job_id in _queued(state) if job_id not in refused)
    by_time = sorted((way.time_us, way.job.id, way.job.configuration, way.job) for job in jobs for way in ways(job, UNKNOWN))
    places = (place(state, one) for *_, one in by_time)
    return next((found for found in places if found is not None), None)
