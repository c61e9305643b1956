"""The demo's folder, and the promise that nothing of it stays behind.

Everything lies in one new folder. Its path is in the command line, the environment or the working folder of every process
that belongs to the demo, which is how those are found that should have been gone already.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from scheduler_service.store.embedded.binaries import reachable, who_runs_it


def make() -> Path:
    """A folder that PostgreSQL can work in, too: when we are root, that runs as another user, who must get there."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="ebb-demo-", dir=parent)).resolve()
        identity = who_runs_it(folder)
        if identity.other:
            os.umask(os.umask(0) & ~0o011)  # who is not us may pass through our folders, not look into them
            folder.chmod(0o711)
        if reachable(folder, identity):
            return folder
        folder.rmdir()
    raise OSError(f"user {identity.name}, who runs PostgreSQL, can reach neither {tempfile.gettempdir()} nor /tmp")


def end_leftovers(folder: Path) -> list[str]:
    """Kills every process that belongs to the folder; returns their command lines. There should be none."""
    found = [process for process in psutil.process_iter() if process.pid != os.getpid() and _belongs(process, folder)]
    lines = []
    for process in found:
        with suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()) or process.name())
            process.kill()
    psutil.wait_procs(found, timeout=5)
    return lines


def _belongs(process: psutil.Process, folder: Path) -> bool:
    looks: tuple[Callable[[], list[str]], ...] = (
        process.cmdline,
        lambda: list(process.environ().values()),
        lambda: [process.cwd()],
    )
    for look in looks:
        with suppress(psutil.Error):  # it has ended, or is somebody else's
            if any(str(folder) in text for text in look()):
                return process.status() != psutil.STATUS_ZOMBIE
    return False


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
