"""A job that migrates is preempted where it runs: what its destination kept is idle at once."""

import pytest

from scheduler_service.core.messages import MigrateRequested
from scheduler_service.core.model import JobState, StopReason
from scheduler_service.policies.chosen_stages import order_of, stages
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, spec


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("policy", ["fitgpp", "lrtp", "rand", "thrifty"])
def test_whoever_preempts_it_starts_at_its_destination_if_there_is_room_now(policy: str, in_order: bool) -> None:
    made = stages(policy, PreemptionSettings(in_order=in_order))
    d = Driver(made.policy, order=order_of(made))
    for name in ("n1", "n2"):
        d.join(name)
    moves = d.submit(spec(6))
    d.start(moves)
    d.step(MigrateRequested(moves, ("n2",)))
    claimant = d.submit(spec(8, trial=True))
    assert d.run(moves).stop_reason is StopReason.PREEMPTED
    assert d.job(claimant).state is JobState.STARTING
    assert d.run(claimant).node == 2
    assert d.earmark(claimant) is None
