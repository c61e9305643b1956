"""Which modules a job has imported: what its next run can import before it begins."""

import re
from contextlib import suppress
from pathlib import Path

from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey
from node_agent.spool.spool import Spool

_MOST = 4096
"""Modules. A message may have no more than is sensible."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


def last_modules(spool: Spool, paths: Paths, job_id: int) -> tuple[str, ...]:
    """Those of the job's last run on this node, in the order of its imports; none if it has not said."""
    runs = [key for key in spool.runs if key.job_id == job_id]
    for key in sorted(runs, key=lambda key: (-key.run, key.task)):
        if modules := written(paths, key):
            return modules
    return ()


def written(paths: Paths, key: RunKey) -> tuple[str, ...]:
    """What the run has said. It is the user's program that writes this."""
    with suppress(OSError, UnicodeDecodeError):
        lines = Path(paths.modules(key)).read_text(encoding="ascii").split()
        return tuple(name for name in lines[:_MOST] if _NAME.fullmatch(name) and len(name) < 256)
    return ()
