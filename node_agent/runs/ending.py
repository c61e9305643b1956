"""Handles the end of a run: reports it, and frees what the run held."""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from node_agent.processes import exit_status, job_files
from node_agent.processes.job_reports import read_names, read_record
from node_agent.processes.launcher.spawn import EXIT_FILE, PROCESS_FILE, SAVERS_FILE, STOP_FILE, YIELD_FILE, savers_of
from node_agent.processes.run_cgroups import RunCgroups
from node_agent.processes.run_paths import Paths
from node_agent.run_state.events import Exited
from node_agent.run_state.model import RunKey, RunPhase, RunRecord, clean
from node_agent.run_state.save_result import Known, save_result
from node_agent.run_state.save_values import RunSaves, SaveMeans
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)

LAUNCH_ERROR_LIMIT = 2048
"""Bytes. A report must fit wherever the scheduler keeps it."""

_READ = (
    *(PROCESS_FILE, EXIT_FILE, STOP_FILE, YIELD_FILE, SAVERS_FILE, "done", "result", "steps", "modules", "grace"),
    *("checkpoint.json", "restored-home"),
)
"""Names that the agent or the launcher reads in the folder of a run."""


class Ending:
    """The ends of one spool's runs. `over` is called before the end of a run is kept, `gone` afterwards; `killing` says whether
    all runs are killed because the agent stops. `bring_home` fetches what a restored run left in its former folder, `dump_said`
    gives the result of dumping a run, in words, and `means`, what was to save it when it was told to stop."""

    def __init__(
        self,
        spool: Spool,
        holding: RunCgroups,
        paths: Paths,
        node: str,
        reported: Callable[[], None],
        over: Callable[[RunKey], None],
        gone: Callable[[RunRecord, Exited], None],
        killing: Callable[[], bool],
        bring_home: Callable[[RunKey], None],
        dump_said: Callable[[RunKey], str],
        means: Callable[[RunKey], SaveMeans],
    ) -> None:
        self._spool = spool
        self._holding = holding
        self._paths = paths
        self._node = node
        self._reported = reported
        self._over = over
        self._gone = gone
        self._killing = killing
        self._bring_home = bring_home
        self._dump_said = dump_said
        self._means = means

    def refuse(self, record: RunRecord, error: str, job_fault: bool = True) -> None:
        """End a run that cannot be launched: because of what its job names, or because of the node itself."""
        text = clean(f"{error} (on node {self._node})", LAUNCH_ERROR_LIMIT)
        self.finish(record, Exited(launch_error=text, job_fault=job_fault))

    def not_fetched(self, record: RunRecord, why: str) -> None:
        """End a run whose checkpoint cannot be had."""
        self.finish(record, Exited(not_fetched=clean(f"{why} (on node {self._node})", LAUNCH_ERROR_LIMIT)))

    def finish(self, record: RunRecord, event: Exited) -> None:
        self._bring_home(record.key)
        means = self._means(record.key)
        self._over(record.key)
        killing = self._killing()
        if not (event.launch_error or event.not_fetched):
            ours = record.stop_received is not None or killing
            event = exit_status.explain_end(event, record, self._paths, self._holding.is_oom_killed(record, event, ours))
            if record.stop_received is not None:
                said = self._dump_said(record.key) if event.yielded and record.checkpoint_asked else ""
                event = replace(event, told=True, checkpoint=said or record.checkpoint)
            elif killing and exit_status.is_killed(event):
                event = replace(event, node_stopped=True)
            self._tell_ignored(record)
            names = read_names(self._paths.checkpoint_names(record.key))
            save = save_result(event, record, self._collect_known(record, names, means))
            event = replace(event, began_from=names.began_from, saved=names.saved, save=save)
        self._spool.report(replace(record, phase=RunPhase.ENDED, launch=None, ended_at=time.time()), event)
        self._reported()
        # Runs that end as expected are not worth a line each: the scheduler has their story.
        level = logging.INFO if event.launch_error or event.unknown or event.out_of_memory else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(level, "run %s: ended, %s", record.key, exit_status.describe_end(event))
        self._holding.release(record.key)
        self._gone(record, event)

    def _collect_known(self, record: RunRecord, said: RunSaves, means: SaveMeans) -> Known:
        """Return what is known of the saves of a run that has ended."""
        if savers_of(self._paths.folder(record.key)):
            means = SaveMeans.REGISTERED
        by_system = record.checkpoint_asked and record.launch is not None and not record.launch.checkpoint_signal
        late = record.stop_deadline is not None and time.monotonic() >= record.stop_deadline
        return Known(said, means, by_system, late, read_record(self._paths.steps(record.key), time.monotonic_ns()))

    def _tell_ignored(self, record: RunRecord) -> None:
        """Say in the run's own log, and in the agent's, what the run has put where only plain files are read."""
        if not (found := job_files.find_unusable(self._paths.folder(record.key), _READ)):
            return
        said = f"{', '.join(found)}: ignored, because only plain files are read there"
        log.warning("run %s: %s", record.key, said)
        with suppress(OSError):
            job_files.append_text(*os.path.split(record.log_path), f"ebb: {said}\n")
