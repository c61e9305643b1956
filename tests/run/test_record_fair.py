"""A recording of a service that goes by usage comes out the same: no rounding is left to the machine."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from scheduler_service.core.messages import Submitted
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.state.state import State
from scheduler_service.engine_settings import stages_of
from scheduler_service.policies.fair_share.rules import NAME
from scheduler_service.recording import begin
from scheduler_service.run.ports import CommitRefused
from scheduler_service.run.recording.record import Recorder
from tests.run.live import CONFIG, Site
from tests.run.recorded import replayed

FAIR = CONFIG.model_copy(update={"policy": "fair", "policy_settings": {"half_life": 5, "period": 1, "user.ann": 2}})


class Users(Site):
    """Several users and projects; a step takes a twentieth of a second."""

    def now(self) -> int:
        self.time += 50_000
        return self.time

    def _submit(self) -> Submitted:
        event = super()._submit()
        number = int(event.request_id.split()[1])
        return replace(
            event, user=("ann", "bob", "cid")[number % 3], spec=with_changes(event.spec, project=("", "p")[number % 2])
        )


@pytest.mark.parametrize("seed", [1, 2])
async def test_it_is_replayed_over_two_leaderships(tmp_path: Path, seed: int) -> None:
    path, made = tmp_path / "recording.jsonl", list[Recorder]()
    site = Users(seed, config=FAIR)

    def recorder(state: State, commit_no: int, known: set[str]) -> Recorder:
        known |= {subject for policy, subject in state.memos.rows if policy == NAME and "/usage/" in subject}
        made.append(begin(FAIR.model_copy(update={"record": path}), stages_of, state, commit_no))
        return made[-1]

    loaded: list[set[str]] = [set(), set()]
    for known in loaded:
        ended = await site.lead(partial(recorder, known=known), 40)
        assert ended is None or isinstance(ended, CommitRefused), "of a renewal that nobody asked for, and nobody can be told"
        made[-1].close()
    assert loaded[0] == set()
    assert "/usage/p/ann" in loaded[1], "the second leader goes on with the usage that the first has counted"
    assert replayed(path).sections == 2
