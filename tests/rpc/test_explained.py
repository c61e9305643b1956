"""What `Explain` tells of the past."""

import pytest

from scheduler_service.core.model import EventKind, Job, JobEvent, JobSpec, JobState
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.rpc.services.explain import preempted_out
from scheduler_service.run.view import JobView


@pytest.mark.parametrize("back", [EventKind.STARTED, EventKind.SUSPENDED, EventKind.HELD])
def test_a_preemption_costs_until_the_job_is_back_or_set_aside_by_its_user(back: EventKind) -> None:
    told = [
        (0, EventKind.PREEMPTED, 7),
        (5, EventKind.STARTED, 0),
        (100, EventKind.PREEMPTED, 9),
        (130, back, 0),
        (200, EventKind.STARTED, 0),
    ]
    story = [JobEvent(1, at * SECOND, kind, cause_job=cause) for at, kind, cause in told]
    job = Job(1, JobSpec(("true",), Vector(0, 0, 120)), "ann", "", 0, JobState.RUNNING)
    cost = preempted_out(story, JobView(job, ()))
    assert cost is not None
    assert (cost.by_job_id, cost.time.seconds, cost.away.seconds, cost.device_hours) == (9, 100, 30, pytest.approx(1))
