"""Waits for the ends of runs that are no longer children of a launcher, or that have ended already."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from node_agent.processes import exit_status
from node_agent.processes.launcher.spawn import may_save
from node_agent.processes.process_watch import GroupWatch
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Exited
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

_LOOK_AGAIN = 1.0
"""Seconds that a launcher may take to record the end of a run that has visibly ended."""


class Orphans:
    """The orphans among one spool's runs. `finish` is called with a run that has ended. `guarded` calls a function for the
    event loop, and reports what fails in it."""

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        paths: Paths,
        finish: Callable[[RunRecord, Exited], None],
        guarded: Callable[..., None],
    ) -> None:
        self._spool = spool
        self._holding = holding
        self._paths = paths
        self._finish = finish
        self._guarded = guarded
        self._watches: dict[RunKey, GroupWatch] = {}
        self._looks: dict[RunKey, asyncio.TimerHandle] = {}
        """Timers of runs whose end is to be looked for once more."""

    def watch(self, key: RunKey) -> None:
        record = self._spool.runs[key]
        if record.phase is not RunPhase.ENDED and key not in self._watches:
            ended = partial(self._guarded, self._finish_vanished, key)
            saves = partial(may_save, self._paths.folder(key))
            self._watches[key] = watch = GroupWatch(record.pid, record.start_ticks, ended, self._holding.path(key), saves)
            watch.begin()

    def forget(self, key: RunKey) -> None:
        self._watches.pop(key, None)

    def close(self) -> None:
        """Stop watching. Runs keep running."""
        for watch in self._watches.values():
            watch.close()
        for look in self._looks.values():
            look.cancel()

    def _finish_vanished(self, key: RunKey) -> None:
        """Finish a run that has vanished. A launcher that this agent cannot reach may still be about to record its end."""
        record, looked = self._spool.runs[key], self._looks.pop(key, None)
        if record.phase is RunPhase.ENDED:
            return
        if (event := exit_status.exit_file(self._paths.folder(key))) is not None or looked is not None:
            self._finish(record, event or Exited(unknown=True))
        else:
            log.debug("run %s: is over, and nobody has said how; looking once more", key)
            again = partial(self._guarded, self._finish_vanished, key)
            self._looks[key] = asyncio.get_running_loop().call_later(_LOOK_AGAIN, again)
