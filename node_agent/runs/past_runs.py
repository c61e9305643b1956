"""The runs of this node's earlier spools, of before a reboot, say. They are over, and their logs are where they were.

A number names a run within one cluster alone, and a state directory may have been another cluster's before. So the folder of
each spool says whose runs it has.
"""

import os
from contextlib import suppress
from pathlib import Path

from node_agent.processes.run_paths import RUNS, Paths
from node_agent.run_state.model import RunKey

_CLUSTER = "cluster"
"""In the folder of a spool: the id of the cluster that it obeys."""


def note_cluster(paths: Paths, cluster_id: str) -> None:
    """To be called before there are runs. Where it cannot be written, a later spool does not find these logs."""
    folder = paths.state / RUNS / paths.spool
    if _cluster_of(folder) != cluster_id:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _CLUSTER).write_text(cluster_id)


def log_of(paths: Paths, cluster_id: str, key: RunKey) -> Path:
    """Where the log of a run is that this spool may not know; the last one, should there be several. Reads directories."""
    own = paths.log(key)
    if own.parent.exists():
        return own
    found = []
    with suppress(OSError):
        for folder in os.scandir(paths.state / RUNS):
            log = paths.of_spool(folder.name).log(key)
            with suppress(OSError):
                found.append((log.lstat().st_mtime, folder.path, log))
    return next((log for _, folder, log in sorted(found, reverse=True) if _cluster_of(Path(folder)) == cluster_id), own)


def _cluster_of(folder: Path) -> str:
    try:
        return (folder / _CLUSTER).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
