"""Reads the files that jobs write for the agent: steps, names of checkpoints, and grace periods that they ask for.

A job may write anything there, or replace the file. A step file has the format of `ebb_inject.ebb_hook.step_file`.
"""

import json
import os
from dataclasses import dataclass
from math import isfinite

from ebb_inject.ebb_hook.step_file import EVALUATING, RUNNING, SAVING, SIZE, Record, read
from node_agent.processes import job_files
from node_agent.run_state.model import RunKey, clean
from node_agent.run_state.save_values import NOTHING_SAID, RunSaves

MOST = 10**15
"""Maximum steps: more than any job does, and far below what a message can hold."""
_COPIES = 8
"""Times that a file is copied until a record is whole. One copy is almost always enough."""
_CLOCKS = 1_000_000_000
"""Nanoseconds by which a step may be later than `now_ns`, because the clock is read before the file."""
_ROUNDED = 1 + 1e-6
_NAMES_BYTES = 4096
_LONGEST_NAME = 255
"""Bytes of the name of a checkpoint."""
_LONGEST_REASON = 1024
LONGEST = 86400.0
"""Longest grace period of a job, in seconds."""
_GRACE_BYTES = 64


def read_record(path: str, now_ns: int) -> Record | None:
    """Return the record that the program published last; None if it is missing or implausible. Raises nothing.

    The file is copied and not mapped: an agent that maps a file is killed if the program truncates that.
    """
    try:
        descriptor = job_files.open_file(*os.path.split(path))
    except OSError:
        return None
    try:
        for _ in range(_COPIES):
            data = os.pread(descriptor, SIZE, 0)
            if len(data) < SIZE:
                return None
            if (record := read(data)) is not None:
                return record if is_plausible(record, now_ns) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def is_plausible(record: Record, now_ns: int) -> bool:
    """Whether a program that counts its steps can have published this by now."""
    lived = record.last_ns - record.began_ns
    return (
        record.state in (RUNNING, EVALUATING, SAVING)
        and 0 <= record.rank <= MOST
        and 0 <= record.total <= MOST
        and 0 <= record.untimed <= record.counted <= MOST
        and 0 <= record.first + record.counted <= MOST
        and 0 < record.began_ns <= record.last_ns <= now_ns + _CLOCKS
        and record.began_ns <= record.changed_ns <= now_ns + _CLOCKS
        and 0 <= record.busy_ns <= lived
        and isfinite(record.squares)
        and 0 <= record.squares <= (record.busy_ns * 1e-9) ** 2 * _ROUNDED + 1e-12
    )


def read_names(path: str) -> RunSaves:
    """Return the run's account of its checkpoints. Raises nothing: invalid content counts as no name."""
    content = job_files.read_file(*os.path.split(path), _NAMES_BYTES)
    try:
        said = None if content.data is None else json.loads(content.data)
    except (ValueError, RecursionError):
        return NOTHING_SAID
    if not isinstance(said, dict):
        return NOTHING_SAID
    failed = said.get("failed")
    reasons = [text for why in failed.values() if (text := _text(why, _LONGEST_REASON))] if isinstance(failed, dict) else []
    names = _text(said.get("began_from"), _LONGEST_NAME), _text(said.get("saved"), _LONGEST_NAME)
    return RunSaves(*names, _number(said.get("step"), -1), reasons[0] if reasons else "", _number(said.get("failures"), 0))


def _text(said: object, limit: int) -> str:
    return clean(said, limit) if isinstance(said, str) else ""


def _number(said: object, otherwise: int) -> int:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said <= MOST else otherwise


@dataclass(frozen=True, slots=True)
class RunGrace:
    key: RunKey
    seconds: float


def read_grace(path: str, key: RunKey) -> RunGrace | None:
    """Return the grace period that the run asks for; None if it asks for none, or for an invalid one. Raises nothing."""
    content = job_files.read_file(*os.path.split(path), _GRACE_BYTES)
    try:
        seconds = float(content.data or b"")
    except ValueError:
        return None
    # Less than a microsecond is 0 in a message.
    return RunGrace(key, min(seconds, LONGEST)) if isfinite(seconds) and seconds >= 1e-6 else None
