"""Finds out, from the files and the processes of a run, what would save it if it were stopped now."""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from node_agent.processes.launcher.spawn import savers_of
from node_agent.processes.process_groups import handles, is_populated, pids, processes_inside, read, stat_fields
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, RunRecord
from node_agent.run_state.save_values import SaveMeans

_PASS_ON = frozenset({"timeout", "torchrun", "accelerate", "uv", "tini", "dumb-init", "torch.distributed.run"})
"""Programs that handle SIGTERM to pass it on, and save nothing."""
_SETTLED = frozenset({SaveMeans.REGISTERED, SaveMeans.ASKED})
"""Results that no later look changes."""
_PART, _LONGEST = 0.05, 60.0
"""Processes are looked at again after this part of the age of the run, and after this many seconds at the latest."""


class SaveMeansWatch:
    """Watches the runs of one node. `group` gives the path of the control group of a run; `dumps` says whether CRIU dumps it;
    `has_files`, whether something is in the checkpoint folder of a job."""

    def __init__(
        self,
        paths: Paths,
        group: Callable[[RunKey], str],
        dumps: Callable[[RunRecord], bool],
        has_files: Callable[[int], bool],
    ) -> None:
        self._paths = paths
        self._group = group
        self._dumps = dumps
        self._has_files = has_files
        self._found: dict[RunKey, SaveMeans] = {}
        self._next: dict[RunKey, float] = {}
        """When to look at the processes of a run again, by the monotonic clock."""
        self._first: dict[RunKey, float] = {}

    def find_means(self, runs: Iterable[RunRecord]) -> Mapping[RunKey, SaveMeans]:
        """Return what saves each of these runs, which are all live ones. For a run that has not registered it looks at all
        processes of the node, less often the older the run is."""
        now = time.monotonic()
        runs = [run for run in runs if run.pid]
        self._first = {run.key: self._first.get(run.key, now) for run in runs}
        self._found = {run.key: found for run in runs if (found := self._found.get(run.key)) is not None}
        self._next = {run.key: self._next.get(run.key, now) for run in runs}
        late = []
        for run in runs:
            if self._found.get(run.key) not in _SETTLED:
                if (sure := self._registered_means(run)) is not None:
                    self._found[run.key] = sure
                elif self._next[run.key] <= now:
                    late.append(run)
        if late:
            parents = _parents()
            for run in late:
                self._found[run.key] = self._by_processes(run, parents)
                self._next[run.key] = now + min(_PART * (now - self._first[run.key]), _LONGEST)
        return self._found

    def find_means_of(self, run: RunRecord) -> SaveMeans:
        """Return what saves a run, looked at now."""
        found = self._registered_means(run)
        return self._by_processes(run, _parents()) if found is None else found

    def _registered_means(self, run: RunRecord) -> SaveMeans | None:
        """Return what is known without a look at processes."""
        if savers_of(self._paths.folder(run.key)):
            return SaveMeans.REGISTERED
        launch = run.launch
        if launch is not None and (launch.checkpoint_signal or launch.checkpoint_command):
            return SaveMeans.ASKED
        return None

    def _by_processes(self, run: RunRecord, parents: Mapping[int, int]) -> SaveMeans:
        if any(_handles(pid, parents) for pid in _members(run, self._group(run.key), parents)):
            return SaveMeans.HANDLER
        if self._dumps(run):
            return SaveMeans.ASKED
        return SaveMeans.FILES if self._has_files(run.key.job_id) else SaveMeans.NONE


def _parents() -> dict[int, int]:
    """The parent of each process of the node."""
    return {pid: int(fields[1]) for pid in pids() if len(fields := stat_fields(pid)) > 1 and fields[0] not in "ZX"}


def _members(run: RunRecord, group: str, parents: Mapping[int, int]) -> Collection[int]:
    """Return the processes that descend from that of the run, and those of its control group."""
    below: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        below.setdefault(parent, []).append(pid)
    found, waiting = set(processes_inside(group) if is_populated(group) else ()), [run.pid]
    while waiting:
        pid = waiting.pop()
        if pid in parents:
            found.add(pid)
        waiting += below.get(pid, ())
    return found


def _handles(pid: int, parents: Mapping[int, int]) -> bool:
    """Whether a process handles SIGTERM, and is neither a worker of one that does not nor one that only passes signals on."""
    if not handles(pid, signal.SIGTERM):
        return False
    command = read(f"/proc/{pid}/cmdline")
    parent = parents.get(pid, 0)
    if command == read(f"/proc/{parent}/cmdline") and not handles(parent, signal.SIGTERM):
        return False
    return not any(_name(part) in _PASS_ON for part in command.split(b"\0")[:3])


def _name(part: bytes) -> str:
    with suppress(UnicodeDecodeError):
        return os.path.basename(part.decode())  # noqa: PTH119
    return ""
