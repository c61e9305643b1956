"""Asks a run that is being stopped to save, by its job's checkpoint signal or checkpoint command, before it gets SIGTERM. If
the agent uses CRIU, that dumps a run that does not save its work itself, as a checkpoint command of the agent's own.

A command runs under the launcher, so its exit status outlives the agent: an agent that was killed in between asks the launcher
for the same command again, and gets the result. The spool has the rest: whether the signal was sent, and when the run is
killed.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from node_agent.errors import UnknownDevice
from node_agent.processes import exit_status, job_files
from node_agent.processes.launcher.client import Absent, Ended, Lost, NotSpawned, Outcome, Spawned, Unable
from node_agent.processes.launcher.spawn import YIELD_FILE
from node_agent.processes.process_groups import is_led_by, kill_group, rest_of, signal_handlers
from node_agent.processes.process_watch import GroupWatch
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Exited
from node_agent.run_state.model import SAVES, LaunchSpec, Process, RunKey, RunPhase, RunRecord, clean
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

TEXT_LIMIT = 1024
"""Bytes of the message about a checkpoint signal or command."""
_LAST_PART = 0.1
"""Part of the grace period: if the job does not say how long saving takes, SIGTERM comes when this much is left."""
_LAST_SECONDS = 30.0
"""Maximum of what is left then."""


def sigterm_at(launch: LaunchSpec, received: float, deadline: float) -> float:
    """Return when a run that is asked to save at `received` and killed at `deadline` gets SIGTERM."""
    _, _, seconds = launch.checkpoint_signal.partition("@")
    if seconds:
        return min(received + int(seconds), deadline)
    return deadline - min(_LAST_SECONDS, _LAST_PART * (deadline - received))


class Checkpointing:
    """Save requests to the runs of one spool.

    `spawn` starts the checkpoint command of a run, and may raise OSError and UnknownDevice; `find` asks the launcher for the
    result of one. `terminate` is called with a run when SIGTERM is due, and a sentence about that; `saved`, when the command
    has saved. `why_not_dumped` says why a run without a command is not dumped (empty: it is); `dump_said`, the result of a
    dump. `guarded` calls a function for the event loop, and reports what fails in it.
    """

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        paths: Paths,
        spawn: Callable[[RunRecord], None],
        find: Callable[[RunKey], None],
        terminate: Callable[[RunKey, str], None],
        saved: Callable[[RunKey, str], None],
        why_not_dumped: Callable[[RunRecord], str],
        dump_said: Callable[[RunKey], str],
        guarded: Callable[..., None],
    ) -> None:
        self._spool = spool
        self._holding = holding
        self._paths = paths
        self._spawn = spawn
        self._find = find
        self._terminate = terminate
        self._saved = saved
        self._why_not_dumped = why_not_dumped
        self._dump_said = dump_said
        self._guarded = guarded
        self._timers: dict[RunKey, asyncio.TimerHandle] = {}
        """Timers until SIGTERM."""
        self._commands: dict[RunKey, Process] = {}
        self._watches: dict[RunKey, GroupWatch] = {}

    def close(self) -> None:
        """Send no signals from here on. Commands keep running."""
        for timer in self._timers.values():
            timer.cancel()
        for watch in self._watches.values():
            watch.close()

    def begin(self, record: RunRecord, deadline: float) -> bool:
        """Ask a run that is being stopped to save; False: SIGTERM is due now. A repeated call sets the times again."""
        key, launch, received = record.key, record.launch, record.stop_received
        self.pause(key)
        if launch is None or received is None or not self._is_to_save(record, launch):
            return False
        due = sigterm_at(launch, received, deadline)
        if record.signalled or record.stop_reason not in SAVES or due <= time.monotonic():
            self._stop_command(key)
            return False
        asked = self._signal(record, launch) if launch.checkpoint_signal else self._command(record)
        if asked:
            self._timers[key] = asyncio.get_running_loop().call_at(due, self._guarded, self._handle_timeout, key)
        return asked

    def _is_to_save(self, record: RunRecord, launch: LaunchSpec) -> bool:
        if launch.checkpoint_signal or launch.checkpoint_command or record.checkpoint_asked:
            return True
        if why := self._why_not_dumped(record):
            log.debug("run %s: CRIU does not save it: %s", record.key, why)
        return not why

    def pause(self, key: RunKey) -> None:
        """Send the run no SIGTERM until `begin` is called again."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def abandon_save(self, key: RunKey) -> None:
        """End the command of a run that has ended, or is being killed."""
        self.pause(key)
        self._stop_command(key)

    def hear(self, event: Outcome) -> None:
        """Handle what the launcher reports about a command."""
        key = event.key
        record = self._spool.runs.get(key)
        goes_on = record is not None and record.phase is RunPhase.STOPPING and not record.signalled
        match event:
            case Spawned(_, pid, ticks, child):
                self._commands[key] = Process(pid, ticks)
                if not goes_on:
                    self._kill(key)
                elif not child:
                    self._watch(key)
            case Ended(_, code, signum):
                self._handle_command_end(key, Exited(code, signum))
            case NotSpawned(_, error) | Unable(_, error):
                self._handle_failed_save(key, f"could not be started ({error})")
            case Lost() | Absent():
                self._handle_failed_save(key, "is gone, and nobody knows how it ended")
            case _:
                assert_never(event)

    def _signal(self, record: RunRecord, launch: LaunchSpec) -> bool:
        if record.checkpoint_asked:
            return True
        name = f"SIG{launch.checkpoint_signal.partition('@')[0]}"
        group = self._holding.path(record.key)
        members = rest_of(record.pid, record.start_ticks, group) if is_led_by(record.pid, record.start_ticks) else []
        sent = signal_handlers(members, signal.Signals[name])
        said = f"it was sent {name}" if sent else f"no process of it handles {name}; SIGTERM was sent at once"
        # Recorded afterwards: an agent that is killed in between signals twice.
        self._spool.remember([replace(record, checkpoint_asked=True, checkpoint=said)])
        log.info("run %s: %s to %d of %d processes", record.key, name, sent, len(members))
        return sent > 0

    def _command(self, record: RunRecord) -> bool:
        """Start the command. Harmless to repeat: the launcher starts it once."""
        what = _saver_name(record)
        said = f"it exited before {what} did"
        record = replace(record, checkpoint_asked=True, checkpoint=said)
        self._spool.remember([record])
        try:
            self._spawn(record)
        except (OSError, UnknownDevice) as error:
            said = clean(f"{what} could not be started ({error}); SIGTERM followed", TEXT_LIMIT)
            self._spool.remember([replace(record, checkpoint=said)])
            return False
        return True

    def _watch(self, key: RunKey) -> None:
        """Watch a command that is no child of this launcher, or has ended."""
        if key not in self._watches:
            self._watches[key] = watch = GroupWatch(
                *self._commands[key], partial(self._guarded, self._handle_lost_command, key)
            )
            watch.begin()

    def _handle_lost_command(self, key: RunKey) -> None:
        self._watches.pop(key, None)
        end = exit_status.exit_file(self._paths.checkpointing(key))
        self._handle_command_end(key, end or Exited(unknown=True))

    def _handle_command_end(self, key: RunKey, end: Exited) -> None:
        self._commands.pop(key, None)
        record = self._spool.runs.get(key)
        if record is None or record.phase is not RunPhase.STOPPING or record.signalled or record.stop_received is None:
            return  # also if the launcher reports a run that this spool never had
        if (end.code or end.signal) and (said := self._dump_said(key)):
            self.pause(key)
            self._terminate(key, f"{said}; SIGTERM followed")
            return
        if end.unknown or end.code or end.signal:
            how = "ended, and nobody knows how" if end.unknown else f"exited with code {end.code}"
            self._handle_failed_save(key, f"was ended by {signal.Signals(end.signal).name}" if end.signal else how)
            return
        try:
            job_files.touch_file(self._paths.folder(key), YIELD_FILE)
        except OSError as error:
            self._handle_failed_save(key, f"saved, and this could not be noted ({error.strerror})")
            return
        self.pause(key)
        took = f"{time.monotonic() - record.stop_received:.1f} s"
        self._saved(key, self._dump_said(key) or f"its checkpoint command saved its work in {took}")

    def _handle_failed_save(self, key: RunKey, how: str) -> None:
        record = self._spool.runs.get(key)
        if record is not None and record.phase is RunPhase.STOPPING and not record.signalled:
            self.pause(key)
            self._terminate(key, clean(f"{_saver_name(record)} {how}; SIGTERM followed", TEXT_LIMIT))

    def _handle_timeout(self, key: RunKey) -> None:
        del self._timers[key]
        record = self._spool.runs.get(key)
        if record is None or record.phase is not RunPhase.STOPPING or record.launch is None or record.stop_received is None:
            return
        took = f"{time.monotonic() - record.stop_received:.1f} s"
        name = record.launch.checkpoint_signal.partition("@")[0]
        self._stop_command(key)
        did = f"it did not exit within {took} of SIG{name}" if name else f"{_saver_name(record)} did not end within {took}"
        self._terminate(key, f"{did}; SIGTERM followed")

    def _stop_command(self, key: RunKey) -> None:
        """Stop the command, even one of an earlier agent: the launcher says which process it is, and `hear` ends it."""
        record = self._spool.runs.get(key)
        launch = None if record is None or not record.checkpoint_asked else record.launch
        if launch is not None and not launch.checkpoint_signal and key not in self._commands:
            self._find(key)
        self._kill(key)

    def _kill(self, key: RunKey) -> None:
        if (watch := self._watches.pop(key, None)) is not None:
            watch.close()
        if (command := self._commands.pop(key, None)) is not None and is_led_by(*command):
            kill_group(command.pid)


def _saver_name(record: RunRecord) -> str:
    """Name what saves a run, for people."""
    return "its checkpoint command" if record.launch is not None and record.launch.checkpoint_command else "CRIU"
