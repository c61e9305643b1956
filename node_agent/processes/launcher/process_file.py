"""The process file of a run, where it is written again in place of what it holds.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os

from node_agent.processes.launcher.spawn import PROCESS_FILE, write_json


def open_mark(directory: str) -> int:
    """The process file of a run, to write to; -1 where it cannot be had, as if its disk were full."""
    try:
        return os.open(f"{directory}/{PROCESS_FILE}", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def rewrite(directory: str, content: dict[str, object]) -> bool:
    """Writes it, or says that it could not."""
    mark = open_mark(directory)
    try:
        return write_json(mark, content)
    finally:
        close(mark)


def close(descriptor: int) -> None:
    """Also where there is none, or its disk refuses."""
    with contextlib.suppress(OSError):
        os.close(descriptor)
