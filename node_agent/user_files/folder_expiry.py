"""Removes the folders of runs that ended long ago, if the site wants that. A folder has the run's log and the files that the
run left there. Checkpoints are elsewhere, and no node knows which of them a job still needs.
"""

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

from node_agent.processes.launcher.spawn import EXIT_FILE, LOG_FILE, PROCESS_FILE
from node_agent.processes.run_paths import RUNS
from node_agent.processes.stray_processes import OVER

log = logging.getLogger(__name__)

_GOING = ".old"
"""Suffix of a folder that is being removed, so that partial files are never found under the run's name."""


async def remove_expired(state: Path, spool: str, known: Container[str], before: float) -> int:
    """Remove the folders of runs that ended before this time (seconds since 1970); return how many.

    `known`: by name, the runs that this spool still answers for, and by SPOOL/NAME the folders that others still use. Nothing
    of another spool's runs is removed before it is certain that none of them lives.
    """
    removed, faults = 0, []
    for folder in await asyncio.to_thread(lambda: list(find_expired(state, spool, known, before))):
        try:
            await asyncio.to_thread(_remove, folder)
            removed += 1
        except OSError as error:
            faults.append(f"{error.filename or folder}: {error.strerror}")
    if faults:
        log.warning("folders of runs that ended long ago cannot be removed: %d, the first: %s", len(faults), faults[0])
    return removed


def find_expired(state: Path, spool: str, known: Container[str], before: float) -> Iterator[Path]:
    """Yield the folders to be removed."""
    for folder in _subfolders(state / RUNS):
        if folder.name != spool and not (folder / OVER).exists():
            continue
        for run in _subfolders(folder):
            ours_and_known = folder.name == spool and run.name in known
            used = ours_and_known or f"{folder.name}/{run.name}" in known
            if run.name.endswith(_GOING) or (not used and _last_sign(run) < before):
                yield run


def _last_sign(run: Path) -> float:
    """Return when the run ended or, if its launcher did not live to record that, when the run last wrote anything."""
    with suppress(OSError):
        return (run / EXIT_FILE).lstat().st_mtime
    signs = [0.0]
    for path in (run, run / PROCESS_FILE, run / LOG_FILE):
        with suppress(OSError):
            signs.append(path.lstat().st_mtime)
    return max(signs)


def _remove(run: Path) -> None:
    going = run
    if not run.name.endswith(_GOING):
        going = run.with_name(run.name + _GOING)
        run.rename(going)
    try:
        shutil.rmtree(going)  # which follows no links, nor does chmod
    except PermissionError:  # some programs leave folders that they may not write themselves
        subprocess.run(["chmod", "-R", "u+rwX", "--", going], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(going)


def _subfolders(folder: Path) -> Iterator[Path]:
    """Yield the subfolders; none if the folder cannot be read: nothing is removed there, and the agent need not fail."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
