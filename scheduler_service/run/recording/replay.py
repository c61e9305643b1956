"""Replaying a recording: the same events through the same `step`, and the same must come out."""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from scheduler_service.core import model as rows
from scheduler_service.core.engine import Policy, step
from scheduler_service.core.messages import WHOLE, Step
from scheduler_service.core.model import estimates, memo, sharing
from scheduler_service.core.model.tenants import exchange, idle_history
from scheduler_service.core.model.tenants import virtual_clusters as vc_rows
from scheduler_service.core.state import exchange_index
from scheduler_service.core.state.queue_order import OrderOf
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import order_of
from scheduler_service.policies.stages import Stages
from scheduler_service.randomness import Drawing
from scheduler_service.run.recording.codec import CodecError, canonical, decode
from scheduler_service.run.recording.record import (
    FORMAT,
    End,
    Line,
    Row,
    Section,
    Stepped,
    SteppedInPart,
    digest,
    encode_outcome,
    words,
)

StagesOf = Callable[[str, Mapping[str, Any]], Stages]
"""Makes the stages of a policy from its name and parameters."""
_text = canonical()
_MODULES = (rows, vc_rows, estimates, exchange, exchange_index, idle_history, memo, sharing)
_ROWS = {name: kind for module in _MODULES for name, kind in vars(module).items() if is_dataclass(kind)}


class Unreadable(Exception):
    """The file is no recording that this version can read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step whose results differ from the recorded ones."""

    line: int
    section: int
    recorded: Stepped
    did: tuple[str, ...]
    """The results of the replayed step, in words."""
    came_out: str
    """All of it, canonically encoded."""


@dataclass(slots=True)
class Summary:
    """Summary of a recording, or of the part that was replayed."""

    sections: int = 0
    steps: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    policies: list[str] = field(default_factory=list)
    """The policy of each section."""
    rows: int = 0
    first_us: int | None = None
    last_us: int | None = None
    commit_no: int = 0
    """The last commit of all."""
    unended: int = 0
    """Sections without an end: their process was killed, or still runs."""
    torn: bool = False
    """The file ends within a line: it is being written, or its machine failed."""

    def count_line(self, line: Line) -> None:
        match line:
            case Section():
                self.sections += 1
                self.unended += 1
                self.policies.append(line.policy)
                self.commit_no = line.commit_no
            case Row():
                self.rows += 1
            case Stepped():
                self.steps += 1
                self.outcomes[line.outcome] += 1
                self.events.update(type(event).__name__ for event in line.events)
                self.first_us = line.now if self.first_us is None else self.first_us
                self.last_us = line.now
                if line.outcome == "adopted":
                    self.commit_no = line.commit
            case End():
                self.unended -= 1


def read_lines(path: Path, summary: Summary) -> Iterator[tuple[int, Line]]:
    """The lines with their numbers, each counted in the summary once it has been dealt with. Raises Unreadable, OSError."""
    last = None
    for number, text in _texts(path, summary):
        if last is not None:
            raise Unreadable(f"{path}, line {number - 1}: {last}")
        try:
            content = json.loads(text)
        except ValueError as error:
            last = error
            continue
        if isinstance(content, list) and content[:1] == ["Section"] and content[1].get("format") != FORMAT:
            raise Unreadable(f"{path}, line {number}: it has format {content[1].get('format')}; this version reads {FORMAT}")
        try:
            line: Line = decode(Line, content)
        except CodecError as error:
            raise Unreadable(f"{path}, line {number}: {error}; was it recorded by another version?") from None
        if number == 1 and not isinstance(line, Section):
            raise Unreadable(f"{path} does not begin as a recording does")
        yield number, line
        summary.count_line(line)
    if not summary.sections:
        raise Unreadable(f"{path} is no recording, or nothing is recorded in it yet")
    summary.torn = summary.torn or last is not None


def _texts(path: Path, summary: Summary) -> Iterator[tuple[int, str]]:
    number = 0
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        try:
            for number, text in enumerate(file, 1):
                yield number, text
        except EOFError:
            summary.torn = True
        except (UnicodeDecodeError, gzip.BadGzipFile, zlib.error) as error:
            raise Unreadable(f"{path}, after line {number}: {error}") from None


def replay(path: Path, stages_of: StagesOf, summary: Summary) -> Difference | None:
    """Takes every step of the recording again, until something else comes out of one. Raises Unreadable, OSError."""
    for number, line, came_out in taken_again(path, stages_of, summary):
        if digest(came_out, _text) != line.digest:
            return Difference(number, summary.sections, line, words(came_out), encode_outcome(came_out, _text))
    return None


def taken_again(path: Path, stages_of: StagesOf, summary: Summary) -> Iterator[tuple[int, Stepped, Step | Exception]]:
    """Each step of the recording with the number of its line, and what comes out of it now. Raises Unreadable, OSError."""
    section: Section | None = None
    began: list[Row] = []
    state: State | None = None
    stages: Stages | None = None
    for number, line in read_lines(path, summary):
        match line:
            case Section():
                section, began, state = line, [], None
                stages = stages_of(line.policy, line.parameters)
            case Row():
                began.append(line)
            case Stepped():
                if section is None or stages is None or (state is None and len(began) != section.rows):
                    raise Unreadable(f"{path}, line {number}: a step before all rows of its section")
                state = state or _state(section, began, order_of(stages))
                yield number, line, _take_again(state, stages.policy, line)
                if line.outcome in ("adopted", "unchanged"):
                    state.adopt()
                else:
                    state.undo()
            case End():
                pass


def _state(section: Section, began: list[Row], order: OrderOf) -> State:
    made = [(row.table, row.key, decode(_ROWS[row.row[0]], row.row)) for row in began]
    cluster = next(row for table, _, row in made if table == "cluster")
    state = State(cluster, section.settings, order)
    state.restore((table, _key(key, row), row) for table, key, row in made if table != "cluster")
    return state


def _key(key: Any, row: Any) -> Any:
    """JSON has no tuples. Rows that know their key have it of the right type."""
    return getattr(row, "key", tuple(key) if isinstance(key, list) else key)


def _take_again(state: State, policy: Policy, line: Stepped) -> Step | Exception:
    """Takes the step, which the caller adopts or undoes."""
    state.pending.policies, state.pending.market = line.unsettled, line.board_changed
    part = line.part if isinstance(line, SteppedInPart) else WHOLE
    try:
        return step(state, line.events, line.now, Drawing(state.cluster.seed, line.commit), policy, part)
    except Exception as fault:
        return fault
