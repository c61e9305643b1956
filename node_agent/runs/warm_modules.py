"""Which modules a job has imported, so that its next run can import them before it begins."""

import re
from contextlib import suppress
from pathlib import Path

from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey
from node_agent.spool.spool import Spool

_MOST = 4096
"""Maximum modules in a message."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


def last_modules(spool: Spool, paths: Paths, job_id: int) -> tuple[str, ...]:
    """Return the modules of the job's last run on this node, in the order of its imports; none if it has not listed any."""
    runs = [key for key in spool.runs if key.job_id == job_id]
    for key in sorted(runs, key=lambda key: (-key.run, key.task)):
        if modules := written(paths, key):
            return modules
    return ()


def written(paths: Paths, key: RunKey) -> tuple[str, ...]:
    """Return the modules that the run has listed. The user's program writes this."""
    with suppress(OSError, UnicodeDecodeError):
        lines = Path(paths.modules(key)).read_text(encoding="ascii").split()
        return tuple(name for name in lines[:_MOST] if _NAME.fullmatch(name) and len(name) < 256)
    return ()
