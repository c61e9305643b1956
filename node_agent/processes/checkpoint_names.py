"""Reads the files in which runs name their checkpoints. A job may write anything there, or replace the file."""

import json
import os
import stat

from node_agent.processes.step_files import MOST
from node_agent.run_state.model import clean
from node_agent.run_state.save_values import NOTHING_SAID, RunSaves

_MOST_BYTES = 4096
_LONGEST_NAME = 255
"""Bytes of the name of a checkpoint."""
_LONGEST_REASON = 1024
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_names(path: str) -> RunSaves:
    """Return the run's account of its checkpoints. Raises nothing: invalid content counts as no name."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return NOTHING_SAID
    try:
        said = json.loads(os.pread(descriptor, _MOST_BYTES, 0)) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError, RecursionError):
        return NOTHING_SAID
    finally:
        os.close(descriptor)
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
