"""The service's writer over the twin."""

from collections.abc import Collection, Sequence

from scheduler_service import startup
from scheduler_service.config import Config
from scheduler_service.core.model import Job, JobEvent
from scheduler_service.core.model.tenants.exchange import Exchange, Posting
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.state import State
from scheduler_service.database import Writer
from scheduler_service.run.read_model import View
from scheduler_service.store import Loaded
from tests.twin import memory
from tests.twin.memory import Memory


class TwinWriter(Writer):
    """As Writer, with the functions of the twin."""

    def __init__(self, database: Memory, epoch: int, commit_no: int) -> None:
        super().__init__(database, epoch, commit_no)  # type: ignore[arg-type]  # it is its own engine
        self._memory = database

    def _write(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        return memory.commit(self._memory, self._epoch, changes, events)

    def _outcome(self) -> str:
        return memory.outcome(self._memory, self._epoch, self._commit_no)

    def find_requests(self, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        return memory.find_requests(self._memory, requests)

    def find_posted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Posting]:
        return memory.find_posted(self._memory, requests)

    def find_accepted(self, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Exchange]:
        return memory.find_accepted(self._memory, requests)


def load_state(database: Memory, epoch: int, config: Config) -> tuple[State, View, Writer]:
    """As startup.load_state, of what the twin holds."""

    def opened() -> tuple[Loaded, Writer]:
        loaded = memory.load(database)
        return loaded, TwinWriter(database, epoch, loaded.commit_no)

    return startup.load_state(opened, config)
