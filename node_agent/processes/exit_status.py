"""How a run ended, by the accounts of its launcher, the run itself and the kernel."""

import json
import logging
import os
import signal
from dataclasses import replace

from node_agent.processes import job_files
from node_agent.processes.launcher.spawn import EXIT_FILE, YIELD_FILE
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Exited
from node_agent.run_state.model import RunRecord

log = logging.getLogger(__name__)

_EXIT_LIMIT = 1 << 16
_PID_LIMIT = 32
"""Bytes."""


def exit_file(folder: str) -> Exited | None:
    """Return the exit status that a launcher has left in the folder of a run."""
    content = job_files.read_file(folder, EXIT_FILE, _EXIT_LIMIT)
    if content.why:
        log.warning("in %s, %s: how the run ended is unknown", folder, content.why)
    try:
        fields = json.loads(content.data or b"")
        return Exited(int(fields["code"]), int(fields["signal"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def explain_end(event: Exited, record: RunRecord, paths: Paths, starved: bool) -> Exited:
    """Return an end in the light of what the run has said. `starved`: the kernel killed it because memory ran out."""
    if job_files.has_file(paths.folder(record.key), YIELD_FILE):
        return replace(event, yielded=True)
    if _obeys(event, record) and _was_done(record, paths):
        return Exited(done=True)
    if (record.out_of_memory or (starved and event.unknown)) and (event.unknown or event.signal == signal.SIGKILL):
        return Exited(signal=signal.SIGKILL, out_of_memory=True, out_of_device_memory=record.device_memory)
    return replace(event, out_of_memory=True) if starved and is_killed(event) else event


def _obeys(event: Exited, record: RunRecord) -> bool:
    """Whether a run may have ended like this because it was told to."""
    if event.unknown:
        return False
    if event.code == event.signal == 0:
        return record.stop_received is not None
    return signal.SIGTERM in (event.signal, event.code - 128)


def is_killed(event: Exited) -> bool:
    return signal.SIGKILL in (event.signal, event.code - 128)


def _was_done(record: RunRecord, paths: Paths) -> bool:
    """Whether the run's own process has said that all of its work is done.

    One of its children cannot say that: the run, a script, may have had more to do.
    """
    try:
        return int(job_files.read_file(*os.path.split(paths.done_file(record.key)), _PID_LIMIT).data or b"") == record.pid
    except ValueError:
        return False


def describe_end(event: Exited) -> str:
    """Describe the end in words, for the log."""
    if event.launch_error:
        return event.launch_error
    if event.out_of_memory:
        return f"signal {event.signal}, out of {'device memory' if event.out_of_device_memory else 'memory'}"
    end = "nobody knows how" if event.unknown else f"signal {event.signal}" if event.signal else f"exit code {event.code}"
    return f"{end}, yielded" if event.yielded else end
