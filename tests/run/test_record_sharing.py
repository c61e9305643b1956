"""A recording begins with the share groups that there are."""

from pathlib import Path
from random import Random

from scheduler_service.core.engine import step
from scheduler_service.core.messages import CancelRequested
from scheduler_service.policies.stages import Stages
from scheduler_service.run.recording.replay import Summary, replay
from tests.core.sharing_desk import shared
from tests.core.test_enact import idle
from tests.run.recorded import recorder


def test_share_groups_come_back_from_a_recording(tmp_path: Path) -> None:
    """A member is cancelled, and its node is told by the same orders as then."""
    path, desk = tmp_path / "recording", shared()
    state, now = desk.state, desk.now + 1
    recording = recorder(path)(state, 0)
    events = [CancelRequested(1)]
    recording.taking(1, now, (state.pending.policies, state.pending.market), events)
    taken = step(state, events, now, Random("1:1"), idle)
    assert taken.orders
    recording.note_taken(taken)
    state.adopt()
    recording.note_adopted()
    recording.close()
    summary = Summary()
    assert replay(path, lambda *_: Stages(idle), summary) is None
    assert summary.steps == 1
