"""How a run came to its end: what its launcher, the run itself and the kernel had to say about it."""

import json
import os
import signal
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from node_agent.jobs.environment import Paths
from node_agent.jobs.launcher.spawn import EXIT_FILE
from node_agent.jobs.model import RunKey, RunRecord, clean
from node_agent.jobs.run_events import Exited

_MOST_BYTES = 4096
_LONGEST_NAME = 255
"""Bytes, of the name of a checkpoint."""


@dataclass(frozen=True, slots=True)
class RunCheckpoints:
    """The names of the checkpoints of a run: the one that it has loaded, and the last one that it has saved; empty: none."""

    key: RunKey
    began_from: str
    saved: str


def exit_file(folder: str) -> Exited | None:
    """What a launcher has left in the folder of a run."""
    try:
        fields = json.loads(Path(folder, EXIT_FILE).read_text(encoding="utf-8"))
        return Exited(int(fields["code"]), int(fields["signal"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def explained(event: Exited, record: RunRecord, paths: Paths, starved: bool) -> Exited:
    """An end, in the light of what the run has said. `starved`: the kernel has killed it for want of memory."""
    if os.path.exists(paths.yielded(record.key)):  # noqa: PTH110
        return replace(event, yielded=True)
    if _obeys(event, record) and _was_done(record, paths):
        return Exited(done=True)
    if (record.out_of_memory or (starved and event.unknown)) and (event.unknown or event.signal == signal.SIGKILL):
        return Exited(signal=signal.SIGKILL, out_of_memory=True, out_of_device_memory=record.device_memory)
    return replace(event, out_of_memory=True) if starved and killed(event) else event


def with_checkpoints(event: Exited, file: str) -> Exited:
    """An end, with the names of the checkpoints that the run has loaded and saved."""
    began_from, saved = checkpoint_names(file)
    return replace(event, began_from=began_from, saved=saved) if began_from or saved else event


def checkpoint_names(file: str) -> tuple[str, str]:
    """Which checkpoint a run has loaded, and which one it has saved last; empty: none. Raises nothing: a job may write anything
    into its file, or replace the file, and what names nothing is no name."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return "", ""
    try:
        said = json.loads(os.pread(descriptor, _MOST_BYTES, 0)) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError, RecursionError):
        return "", ""
    finally:
        os.close(descriptor)
    return (_name(said.get("began_from")), _name(said.get("saved"))) if isinstance(said, dict) else ("", "")


def _name(said: object) -> str:
    return clean(said, _LONGEST_NAME) if isinstance(said, str) else ""


def _obeys(event: Exited, record: RunRecord) -> bool:
    """Whether a run may have ended so because it was told to."""
    if event.unknown:
        return False
    if event.code == event.signal == 0:
        return record.stop_received is not None
    return signal.SIGTERM in (event.signal, event.code - 128)


def killed(event: Exited) -> bool:
    return signal.SIGKILL in (event.signal, event.code - 128)


def _was_done(record: RunRecord, paths: Paths) -> bool:
    """Whether the process that was the run has said that all of its work is done.

    One of its children cannot say that: the run, a script, may have had more to do.
    """
    try:
        return int(Path(paths.done(record.key)).read_text(encoding="ascii")) == record.pid
    except (OSError, ValueError):
        return False


def told(event: Exited) -> str:
    """In words, for the log."""
    if event.launch_error:
        return event.launch_error
    if event.out_of_memory:
        return f"signal {event.signal}, out of {'device memory' if event.out_of_device_memory else 'memory'}"
    end = "nobody knows how" if event.unknown else f"signal {event.signal}" if event.signal else f"exit code {event.code}"
    return f"{end}, yielded" if event.yielded else end
