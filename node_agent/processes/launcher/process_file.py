"""The process file of a run: reading it, and rewriting it in place.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import json
import os

from node_agent.processes import job_files
from node_agent.processes.launcher.spawn import PROCESS_FILE, write_json

_NUMBERS = ("pid", "start", "restoring", "root")


def open_mark(directory: str) -> int:
    """Open the process file of a run for writing; -1 if that is impossible, as on a full disk."""
    try:
        return job_files.open_own(directory, PROCESS_FILE)
    except OSError:
        return -1


def rewrite(directory: str, content: dict[str, object]) -> bool:
    """Replace the content; return whether that succeeded."""
    mark = open_mark(directory)
    try:
        return write_json(mark, content)
    finally:
        close(mark)


def close(descriptor: int) -> None:
    """Close a descriptor, even if it is -1 or its disk refuses."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


def read_process(text: bytes) -> dict[str, object]:
    """Return the fields of a process file. Raises ValueError if it has other content than this program writes."""
    try:
        known = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(known, dict):
        raise ValueError("not a process file")
    return known if all(isinstance(known[name], int) for name in _NUMBERS if name in known) else {}
