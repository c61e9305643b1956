"""The agent's state directory: held by one agent, and its spool claimed for this node."""

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from node_agent.build_devices import Opened
from node_agent.config import Settings
from node_agent.devices.occupied import OccupiedDevices
from node_agent.errors import FolderUnusable, OtherNode, RunsElsewhere, RunsLive, StateInUse, StateUnusable
from node_agent.node_lock import node_keys
from node_agent.processes import stray_processes
from node_agent.processes.process_groups import start_ticks
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import Process
from node_agent.runs.spool_opening import forget, open_spool
from node_agent.spool.spool import Spool

log = logging.getLogger(__name__)


@contextlib.contextmanager
def state_directory(path: Path) -> Iterator[Path]:
    """Create the directory and lock it for this agent alone. The lock ends with the process, however that ends."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnusable(path=path, why=error.strerror) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateInUse(path=path, pid=os.read(descriptor, 32).decode() or "unknown") from None
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        except OSError as error:  # the disk is full
            raise StateUnusable(path=path, why=error.strerror) from error
        yield path
    finally:
        os.close(descriptor)


_NEVER = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors that do not pass by themselves, unlike a full disk."""


def check_folder(name: str, path: Path) -> None:
    """Make the folder, and a temporary file in it. Raises FolderUnusable if no run could ever write there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path).close()
    except OSError as error:
        if error.errno in _NEVER:
            raise FolderUnusable(name=name, path=path, why=error.strerror) from error
        log.warning("%s: nothing can be written in %s now: %s", name, path, error.strerror)


def claim(settings: Settings, state: Path) -> bool:
    """Claim the spool for this node alone. Return whether any runs may hold devices, as far as the scheduler knows."""
    if elsewhere := stray_processes.find_elsewhere(state, settings.node, settings.checkpoint_root):
        where = ", ".join(f"{path} ({', '.join(sorted(runs))})" for path, runs in elsewhere.items())
        raise RunsElsewhere(node=settings.node, where=where)
    spool = open_spool(state / "spool.db")
    try:
        if settings.forget_cluster:
            spool = forgotten(spool, settings)
        elif spool.node not in ("", settings.node):
            live, untold = (len({item.key for item in items}) for items in (spool.live(), spool.pending()))
            if live or untold:
                raise OtherNode(path=state, theirs=spool.node, ours=settings.node, live=live, untold=untold)
            log.warning("this was node %s, and is node %s from now on", spool.node, settings.node)
            spool.discard()
            spool = open_spool(state / "spool.db")
        spool.name(settings.node)
        return bool(spool.live() or spool.pending())
    finally:
        spool.close()


def withhold_devices(opened: Opened, settings: Settings, state: Path) -> Opened:
    """Report devices on which runs of this node under other state directories compute as faulty, until these have ended."""
    keys = set(node_keys(settings.scheduler, settings.node))
    find = partial(stray_processes.find_held_devices, state, keys)
    if not (held := find()):
        return opened
    for text in sorted(set(held.values())):
        log.error("devices are not free: %s", text)
    return replace(opened, provider=OccupiedDevices(opened.provider, find, held))


def forgotten(spool: Spool, settings: Settings) -> Spool:
    """Return a new spool in place of this one, which must have no run that is alive."""
    paths = Paths(settings.state, settings.checkpoint_root, spool.short_id)
    alive = []
    for record in spool.live():
        process = (
            Process(record.pid, record.start_ticks) if record.pid else stray_processes.process_of(paths.folder_path(record.key))
        )
        if process is not None and start_ticks(process.pid) == process.start_ticks:
            alive.append(str(record.key))
    if alive:
        spool.close()
        raise RunsLive(cluster=spool.cluster[0] or "(none)", runs=", ".join(alive))
    return forget(spool)
