"""The runs of this node's earlier spools, such as from before a reboot. They have ended, and their logs are where they were.

A run's number is unique only within a cluster, and the state directory may have belonged to another cluster. So the folder
of each spool names the cluster of its runs.
"""

import os
from contextlib import suppress
from pathlib import Path

from node_agent.processes.run_paths import RUNS, Paths
from node_agent.run_state.model import RunKey

_CLUSTER = "cluster"
"""File in the folder of a spool: the ID of the cluster that it obeys."""


def note_cluster(paths: Paths, cluster_id: str) -> None:
    """Record the cluster before there are runs. If that fails, a later spool does not find these logs."""
    folder = paths.state / RUNS / paths.spool
    if _cluster_of(folder) != cluster_id:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _CLUSTER).write_text(cluster_id)


def log_of(paths: Paths, cluster_id: str, key: RunKey) -> Path:
    """Return the path of the log of a run that this spool may not know; the newest of several. Reads directories."""
    own = paths.log(key)
    if own.parent.exists():
        return own
    found = []
    with suppress(OSError):
        for folder in os.scandir(paths.state / RUNS):
            log = paths.paths_of_spool(folder.name).log(key)
            with suppress(OSError):
                found.append((log.lstat().st_mtime, folder.path, log))
    return next((log for _, folder, log in sorted(found, reverse=True) if _cluster_of(Path(folder)) == cluster_id), own)


def _cluster_of(folder: Path) -> str:
    try:
        return (folder / _CLUSTER).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
