"""The mini-batch time of a run: which source is believed, and what is sent of it."""

import protovalidate
import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import job_pb2
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from node_agent.devices.base import Observation
from node_agent.measuring.mini_batch import MiniBatch, MiniBatchSource, choose_best, step_mini_batch
from node_agent.measuring.observations import Observations
from node_agent.measuring.step_rates import RunSteps, StepState
from node_agent.run_state.model import RunKey
from node_agent.transport import convert

KEY, OTHER = RunKey(7, 1, 0), RunKey(8, 2, 1)
COUNTED = RunSteps(KEY, 500, None, StepState.RUNNING, 0.1, mini_batch=0.5, spread=0.1, measured=100)

mini_batches = st.builds(
    MiniBatch,
    key=st.sampled_from((KEY, OTHER)),
    seconds=st.floats(1e-6, 1e6),
    confidence=st.floats(0, 1),
    source=st.sampled_from(MiniBatchSource),
)


@given(st.lists(mini_batches, max_size=12))
def test_each_run_has_the_most_confident_of_its_best_source(found: list[MiniBatch]) -> None:
    chosen = choose_best(found)
    assert [each.key for each in chosen] == sorted({each.key for each in found})
    for one in chosen:
        same = [each for each in found if each.key == one.key]
        assert one in same
        assert one.source == min(each.source for each in same)
        assert one.confidence == max(each.confidence for each in same if each.source == one.source)


def test_no_more_are_sent_than_the_scheduler_accepts() -> None:
    many = choose_best(MiniBatch(RunKey(job, 1, 0), 1.0, 0.5, MiniBatchSource.MEMORY) for job in range(1, 4099))
    sent = pb.ConnectRequest.FromString(convert.encode(Observations((), (), periods=many))).observations
    assert len(sent.mini_batches) == 4096
    assert protovalidate.collect_violations(sent) == []


def test_steps_are_as_sure_as_their_mean() -> None:
    assert step_mini_batch(COUNTED) == MiniBatch(KEY, 0.5, pytest.approx(0.98), MiniBatchSource.STEPS)


def test_one_step_or_none_says_nothing() -> None:
    assert step_mini_batch(RunSteps(KEY, 1, None, StepState.RUNNING, 0.1)) is None
    assert step_mini_batch(RunSteps(KEY, 1, None, StepState.RUNNING, 0.1, mini_batch=0.5, measured=1)) is None


def test_a_wide_spread_gives_no_confidence_below_zero() -> None:
    wide = RunSteps(KEY, 2, None, StepState.RUNNING, 0.1, mini_batch=0.1, spread=0.9, measured=2)
    found = step_mini_batch(wide)
    assert found is not None
    assert found.confidence == 0


def test_steps_are_better_than_what_the_device_shows() -> None:
    shown = MiniBatch(KEY, 0.25, 0.99, MiniBatchSource.MEMORY)
    black_box = MiniBatch(OTHER, 2.0, 0.7, MiniBatchSource.POWER)
    seen = Observations((Observation(0, 1, 2),), (), (COUNTED,), periods=(black_box, shown))
    assert [(each.key, each.source) for each in seen.mini_batches] == [
        (KEY, MiniBatchSource.STEPS),
        (OTHER, MiniBatchSource.POWER),
    ]
    sent = pb.ConnectRequest.FromString(convert.encode(seen)).observations
    assert sent.mini_batches[1] == job_pb2.MiniBatch(
        job_id=8,
        run=2,
        task=1,
        time=Duration(seconds=2),
        confidence=0.7,
        source=job_pb2.MINI_BATCH_SOURCE_POWER,
    )
    assert protovalidate.collect_violations(sent) == []


def test_the_sources_are_those_of_the_api() -> None:
    told = {value.name: value.number for value in job_pb2.MiniBatchSource.DESCRIPTOR.values if value.number}
    assert {f"MINI_BATCH_SOURCE_{source.name}": int(source) for source in MiniBatchSource} == told
