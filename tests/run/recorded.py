"""Recording a site of `live`, and replaying what was recorded."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from scheduler_service.core.state.state import State
from scheduler_service.engine_settings import stages_of
from scheduler_service.recording import begin, stages_from
from scheduler_service.run.engine_thread import EngineThread
from scheduler_service.run.recording.record import Recording
from scheduler_service.run.recording.replay import Summary, replay
from tests.run.live import CONFIG, Site

again = partial(stages_from, stages_of)


def recorder(path: Path) -> Callable[[State, int], Recording]:
    def of(state: State, commit_no: int) -> Recording:
        made = begin(CONFIG.model_copy(update={"record": path}), stages_of, state, commit_no)
        assert isinstance(made, Recording)
        return made

    return of


async def lead(
    site: Site, path: Path, rounds: int, end: Callable[[EngineThread], None] = EngineThread.stop
) -> Exception | None:
    """A leadership that is recorded and closed, as `leading` does it."""
    made: list[Recording] = []

    def of(state: State, commit_no: int) -> Recording:
        made.append(recorder(path)(state, commit_no))
        return made[0]

    try:
        return await site.lead(of, rounds, end)
    finally:
        made[0].close()


def replayed(path: Path) -> Summary:
    summary = Summary()
    assert replay(path, again, summary) is None
    return summary
