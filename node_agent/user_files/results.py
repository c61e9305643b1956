"""Keeps the results that runs left in EBB_RESULT_FILE until the scheduler has them.

    STATE/results/CLUSTER/JOB.RUN

The file is moved there before the end of its run is reported, so an agent that is killed in between finds it there.
"""

import os
from contextlib import suppress
from pathlib import Path

from node_agent.processes import job_files
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, short_id

FOLDER = "results"
_RESULT = "result"


class Results:
    """The results of one state directory."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def take_result(self, cluster_id: str, key: RunKey) -> bool:
        """Take the result that a run has left, if any; for a gang, that of rank 0. Return whether there was one."""
        own = self._paths.folder(key)
        if key.task or not job_files.has_file(own, _RESULT):
            return False
        folder = self._folder(cluster_id)
        with suppress(OSError):  # not reported: users who wait for the result learn that it is missing
            folder.mkdir(parents=True, exist_ok=True)
            return job_files.move_file(own, _RESULT, str(folder), key.name)
        return False

    def waiting(self, cluster_id: str) -> dict[RunKey, Path]:
        """Return the results that the scheduler does not have yet."""
        found = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder(cluster_id)):
                with suppress(ValueError, TypeError):  # not a file of the agent
                    found[RunKey.parse(entry.name)] = Path(entry.path)
        return found

    def _folder(self, cluster_id: str) -> Path:
        return self._paths.state / FOLDER / short_id(cluster_id)
