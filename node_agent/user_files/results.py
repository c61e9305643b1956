"""What runs leave in EBB_RESULT_FILE, until the scheduler has it.

    STATE/results/CLUSTER/JOB.RUN

The file is moved there before the end of its run is reported, so an agent that is killed in between finds it there.
"""

import os
from contextlib import suppress
from pathlib import Path

from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, short

FOLDER = "results"


class Results:
    """Of one state directory."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def take(self, cluster_id: str, key: RunKey) -> bool:
        """Takes what a run has left, if it has left something; of a gang, what rank 0 has."""
        source = self._paths.result(key)
        if key.task or not os.path.isfile(source) or os.path.islink(source):  # noqa: PTH113, PTH114 (at the end of every run)
            return False
        folder = self._folder(cluster_id)
        with suppress(OSError):  # nothing is reported of it: whoever waits for the result is told that there is none
            folder.mkdir(parents=True, exist_ok=True)
            Path(source).rename(folder / key.name)
            return True
        return False

    def waiting(self, cluster_id: str) -> dict[RunKey, Path]:
        """Those that the scheduler does not have."""
        found = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder(cluster_id)):
                with suppress(ValueError, TypeError):  # somebody else's
                    found[RunKey.named(entry.name)] = Path(entry.path)
        return found

    def _folder(self, cluster_id: str) -> Path:
        return self._paths.state / FOLDER / short(cluster_id)
