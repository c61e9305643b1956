"""The process file of a run: rewriting it in place.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os

from node_agent.processes.launcher.spawn import PROCESS_FILE, write_json


def open_mark(directory: str) -> int:
    """Open the process file of a run for writing; -1 if that is impossible, as on a full disk."""
    try:
        return os.open(f"{directory}/{PROCESS_FILE}", os.O_WRONLY | os.O_CLOEXEC)
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
