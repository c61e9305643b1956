"""What a step costs behind a job that waits is a number of calls: of the policy, no more than a few."""

from random import Random

import pytest

from benchmarks.step_cost import LARGE_NODE, PAPER_NODE, Stream
from scheduler_service.core.model import JobClass, Reason
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.queueing.in_order import head_of
from tests.core.test_cells_cost import calls

MOST = 12
"""Of the policy itself, where no device is idle beside what the first job could use and nothing has changed on nodes."""


@pytest.mark.parametrize(("nodes", "capacity"), [(84, PAPER_NODE), (300, LARGE_NODE)])
def test_a_look_behind_a_job_that_waits_costs_a_few_calls(nodes: int, capacity: Vector) -> None:
    stream = Stream(nodes, capacity, policy="fifo")
    stream.fill(nodes * 8)
    stream.take(stream.submit(JobClass.BEST_EFFORT))
    state, rng = stream.state, Random(0)
    first = head_of(state, dict.fromkeys(OWN_LANES, 0))
    assert first is not None
    assert first.reason is Reason.NO_ROOM
    assert not state.pending.policies
    assert calls(lambda: list(fifo(state, rng))) <= MOST
