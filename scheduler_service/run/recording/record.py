"""Recording: everything that goes into the engine, so that its steps can be taken again elsewhere (see `replay`).

A recording is a file of lines, each an encoded dataclass (see `codec`). A leadership is a section: what the engine was
made of, the rows that it began with, its steps, and an end. What came out of a step is recorded as a digest, with a few
words for people. Values of jobs' environment variables decide nothing and may be secrets: digests stand for them.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import WHOLE, Event, Part, Step
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.run.recording.codec import canonical, encoder
from scheduler_service.run.recording.file import File

FORMAT = 1
SECRET = frozenset({"environment", "inherited"})
"""The field, of whatever dataclass, whose values are not recorded: pairs of a name and a value."""

log = logging.getLogger(__name__)


# ---- the lines ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Section:
    """The start of a leadership, with the settings of its engine."""

    format: int
    version: str
    """The version of Ebb."""
    commit_no: int
    """The last commit before its first step."""
    policy: str
    parameters: dict[str, Any]
    """The settings from which the policy was made."""
    settings: Settings
    rows: int
    """How many rows follow: the state, with the cluster's row, which has the seed."""


@dataclass(frozen=True, slots=True)
class Row:
    table: str
    key: Any
    row: Any


Outcome = Literal["adopted", "unchanged", "undone", "lost", "failed"]
"""The outcome of a step. unchanged: adopted, with nothing to commit; lost: leadership ended before its commit was known to have
succeeded; failed: it raised. The last two end a section."""


@dataclass(frozen=True, slots=True)
class Stepped:
    commit: int
    """The number that its commit would have: its randomness is drawn from this number and the seed."""
    now: Micros
    unsettled: bool
    """Whether the state asked for a look of the policy before the first event."""
    board_changed: bool
    """The same for the exchange arbiter's look at the board."""
    events: tuple[Event, ...]
    outcome: Outcome
    did: tuple[str, ...]
    """The step's results, in words."""
    digest: str
    """SHA-256 of all results of the step (see `digest`)."""


@dataclass(frozen=True, slots=True)
class SteppedInPart(Stepped):
    """A step that was to do a part of what was to be done, since a commit was refused."""

    part: Part


@dataclass(frozen=True, slots=True)
class End:
    """The section ended in order."""

    steps: int


Line = Section | Row | Stepped | SteppedInPart | End


# ---- what came out of a step -------------------------------------------------------------------------------------------


def encode_outcome(came_out: Step | Exception, encode: Callable[[Any], str]) -> str:
    """All that came out of a step, encoded."""
    if isinstance(came_out, Exception):
        return encode(came_out)
    changes = [(change.table, change.key, change.new) for change in came_out.changes]
    parts = changes, came_out.replies, came_out.orders, came_out.log, came_out.refused
    delegated = tuple((one.policy, one.subject) for one in came_out.delegated)
    return encode((*parts, delegated) if delegated else parts)  # so that older recordings have the digests that they had


def digest(came_out: Step | Exception, encode: Callable[[Any], str]) -> str:
    """Return the SHA-256 of all results of a step, canonically encoded."""
    return hashlib.sha256(encode_outcome(came_out, encode).encode()).hexdigest()


def words(came_out: Step | Exception) -> tuple[str, ...]:
    """Return the results that people want to know: job events, orders, and refusals."""
    if isinstance(came_out, Exception):
        return (f"raised {type(came_out).__name__}: {came_out}",)
    said = []
    for event in came_out.log:
        why = f" for {event.cause_job}" if event.cause_job else ""
        said.append(f"{event.kind.name} {event.job_id}.{event.run}" + (f" on {event.node}" if event.node else "") + why)
    said += [f"order {type(order.desired).__name__} {order.key} to {order.node}" for order in came_out.orders]
    for reply in came_out.replies:
        if isinstance(reply, Refused):
            said.append(f"refused {reply.reason}")
        elif isinstance(reply, Exception):
            said.append(f"rejected {type(reply).__name__}: {reply}")
    said += [f"plan refused: {why}" for why in came_out.refused]
    return tuple(said)


# ---- writing -----------------------------------------------------------------------------------------------------------


Looks = tuple[bool, bool]
"""Whether the state is unsettled, and whether the board has changed."""


class Recorder:
    """Recorder of the engine's steps; this base class records nothing. Its methods never raise."""

    def taking(self, commit: int, now: Micros, looks: Looks, events: Sequence[Event], part: Part = WHOLE) -> None:
        """A step is about to be taken; `looks` is what the state asks of the policy before it."""

    def note_taken(self, came_out: Step) -> None:
        """The step has this result, which is about to be committed."""

    def note_adopted(self, committed: bool = True) -> None:
        """The step holds. `committed`: there was something to commit."""

    def note_undone(self) -> None:
        """The state is as it was before the step. Safe to repeat."""

    def note_failed(self, fault: Exception) -> None:
        """The engine has ended by this."""

    def close(self) -> None:
        """Nothing more is told."""


class Recording(Recorder):
    """A section being written. Made before the engine starts, closed when it has ended; else for its thread alone.

    Whatever goes wrong with the file ends the recording, not the engine; `close` says how much is missing.
    """

    def __init__(
        self, path: Path, state: State, commit_no: int, policy: str, parameters: Mapping[str, Any], version: str
    ) -> None:
        """Raises OSError, ValueError: nothing is recorded."""
        hide = _hiding(secrets.token_bytes(32))
        self._encode = encoder(SECRET, hide)
        self._canonical = canonical(SECRET, hide)
        self._path = path
        self._steps = self._missed = 0
        self._given_up = False
        self._at_hand: tuple[int, Micros, bool, bool, tuple[Event, ...]] | None = None
        self._part = WHOLE
        self._came_out: Step | Exception | None = None
        rows = [Row(table.name, key, row) for table in state.tables() for key, row in table.rows.items()]
        header = Section(FORMAT, version, commit_no, policy, dict(parameters), state.settings, len(rows))
        self._file = File(path)
        try:
            self._file.write(map(self._encode, (header, *rows)))
        except BaseException:
            self._file.close()
            raise

    def taking(self, commit: int, now: Micros, looks: Looks, events: Sequence[Event], part: Part = WHOLE) -> None:
        self._at_hand, self._part, self._came_out = (commit, now, *looks, tuple(events)), part, None

    def note_taken(self, came_out: Step) -> None:
        self._came_out = came_out

    def note_adopted(self, committed: bool = True) -> None:
        self._write("adopted" if committed else "unchanged")

    def note_undone(self) -> None:
        self._write("undone")

    def note_failed(self, fault: Exception) -> None:
        """The engine ended by this. If it was in a step, that is worth taking again."""
        if self._came_out is None:
            self._came_out = fault
            self._write("failed")
        else:
            self._write("lost")

    def close(self) -> None:
        """Ends the section."""
        self._write("lost")
        if not self._given_up:
            try:
                self._file.write([self._encode(End(self._steps))])
                self._file.flush()
            except Exception as error:
                self._give_up(error)
        if self._given_up:
            log.error("of the steps of this leadership %d are in %s and %d are not", self._steps, self._path, self._missed)
        self._file.close()

    def _write(self, outcome: Outcome) -> None:
        if self._at_hand is None or self._came_out is None:
            return
        at_hand, came_out = self._at_hand, self._came_out
        self._at_hand = self._came_out = None
        if self._given_up:
            self._missed += 1
            return
        try:
            did = words(came_out), digest(came_out, self._canonical)
            whole_step = self._part == WHOLE
            line = Stepped(*at_hand, outcome, *did) if whole_step else SteppedInPart(*at_hand, outcome, *did, self._part)
            self._file.write([self._encode(line)])
            self._steps += 1
        except Exception as error:
            self._missed += 1
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._given_up = True
        log.error("recording to %s has stopped after %d steps: %s", self._path, self._steps, error)


def _hiding(key: bytes) -> Callable[[Any], Any]:
    """Writes digests for the values of variables: under a key that is thrown away, so that a short secret cannot be found
    by trying; equal where the values are equal, since the engine compares specs."""

    @lru_cache(10_000)
    def hide_value(value: str) -> str:
        return "digest:" + hashlib.blake2b(value.encode(errors="surrogatepass"), key=key, digest_size=16).hexdigest()

    return lambda pairs: [(name, hide_value(value)) for name, value in pairs]
