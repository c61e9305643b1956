"""The checkpoint folders of a node, as agents of other nodes see them, and as this one keeps what it fetches.

    ROOT/.store                     names this storage: nodes that find the same name in their folders share it
    ROOT/CLUSTER/job-N              what the runs of a job saved here
    ROOT/CLUSTER/job-N/.criu        the dump of a run that does not save its work itself (`criu_dumps`)
    ROOT/CLUSTER/job-N/.fetched-R   the folder was complete when run R began to use it
    ROOT/CLUSTER/.incoming-NODE-job-N   a fetch in progress: not used before it is complete

Nothing here waits for the network. Functions that read or write files are to be called in a thread.
"""

import contextlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from node_agent.processes import job_files
from node_agent.processes.launcher.criu_dump import NEW, OLD
from node_agent.processes.process_groups import boot_id
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import short_id

_STORE = ".store"
_FETCHED = ".fetched-"
UPLOAD = ".upload-"
"""Prefix of a mark, before the number of a run: the store does not yet have what that run saved."""
_RUN = ".run-"
"""Prefix of a mark, before the number of a run that began with this folder, if there is a store."""
DUMP = ".criu"
"""The folder of a dump."""
_UNFINISHED_DUMPS = (DUMP + NEW, DUMP + OLD)
MOST_FILES = 100_000
"""Limit for one folder. A job that saves more files is not moved."""


class TooManyFiles(Exception):
    """The checkpoint folder of a job has more files than can be described."""


class SavedFile(NamedTuple):
    """A file of a checkpoint folder. It has changed if any of these has."""

    path: str
    size: int
    modified_ns: int
    mode: int = 0o644
    link: str = ""
    """The target of a symbolic link; empty for a file."""


class Described(NamedTuple):
    """The checkpoint of a job on a node, as that describes it."""

    store: str
    exists: bool = False
    files: tuple[SavedFile, ...] = ()
    modules: tuple[str, ...] = ()
    """Modules that the job's last run there has imported."""
    machine: str = ""
    """The node's machine, by the ID of its boot; `folder` is the path there."""
    folder: str = ""
    would_dump: bool = False
    """Whether CRIU would dump the job's run if it had to move: no warm process can then take its place."""


class CheckpointFolders:
    """The checkpoint folders of one agent."""

    def __init__(self, paths: Paths, node: str) -> None:
        self._root = paths.checkpoints
        self._node = node

    def store(self) -> str:
        """Return the name of this storage, which is made at the first call. Raises OSError."""
        path = self._root / _STORE
        with contextlib.suppress(FileNotFoundError):
            return path.read_text()
        self._root.mkdir(parents=True, exist_ok=True)
        new = self._root / f"{_STORE}.{uuid.uuid4().hex}"
        new.write_text(uuid.uuid4().hex)
        try:
            with contextlib.suppress(FileExistsError):
                os.link(new, path)  # another agent may do the same now: the first name stays
        finally:
            new.unlink()
        return path.read_text()

    def folder(self, cluster_id: str, job_id: int) -> Path:
        return self._root / short_id(cluster_id) / f"job-{job_id}"

    def incoming(self, cluster_id: str, job_id: int) -> Path:
        return self._root / short_id(cluster_id) / f".incoming-{self._node}-job-{job_id}"

    def describe(self, cluster_id: str, job_id: int, modules: tuple[str, ...] = ()) -> Described:
        """Describe the folder of a job. Raises OSError, and TooManyFiles."""
        folder = self.folder(cluster_id, job_id)
        return Described(self.store(), folder.is_dir(), tuple(saved_files(folder)), modules, boot_id(), str(folder))

    def find_nearby(self, described: Described) -> Path | None:
        """Return the folder of another agent on this machine, if its storage can be read here; else None."""
        folder = Path(described.folder)
        if described.machine != boot_id() or not folder.is_absolute():
            return None
        with contextlib.suppress(OSError, IndexError):
            if (folder.parents[1] / _STORE).read_text() == described.store:
                return folder
        return None

    def open(self, cluster_id: str, job_id: int, path: str) -> int:
        """Open a file that was described. Raises OSError, also for a name that leads out of the folder."""
        return open_below(self.folder(cluster_id, job_id), path)

    def is_fetched(self, cluster_id: str, job_id: int, run: int) -> bool:
        """Whether the folder was already completed for this run, which may have saved in it since."""
        return job_files.has_file(str(self.folder(cluster_id, job_id)), f"{_FETCHED}{run}")

    def note_run(self, cluster_id: str, job_id: int, run: int) -> None:
        """Note that a run begins with the folder. Raises OSError."""
        folder = str(self.folder(cluster_id, job_id))
        job_files.make_folder(folder)
        job_files.touch_file(folder, f"{_RUN}{run}")

    def last_run(self, cluster_id: str, job_id: int) -> int:
        """Return the last run that began with the folder; 0: none is known."""
        names = (path.name.removeprefix(_RUN) for path in self.folder(cluster_id, job_id).glob(f"{_RUN}*"))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def publish(self, cluster_id: str, job_id: int, run: int) -> None:
        """Replace the folder by what was fetched. An agent that is killed in between repeats this."""
        folder, new = self.folder(cluster_id, job_id), self.incoming(cluster_id, job_id)
        old = new.with_name(f"{new.name}.old")
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(old)
        job_files.touch_file(str(new), f"{_FETCHED}{run}")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(old)
        new.rename(folder)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(old)

    def discard(self, cluster_id: str, job_id: int) -> None:
        """Remove what was fetched and is no longer needed."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.incoming(cluster_id, job_id))


def open_below(folder: Path, path: str) -> int:
    """Open a file inside a folder. Raises OSError, also for a name that leads out of it, and for a symbolic link."""
    return job_files.open_file(str(folder), path)


def is_as_described(descriptor: int, file: SavedFile) -> bool:
    """Whether an open file is still the one that was described."""
    seen = os.fstat(descriptor)
    return stat.S_ISREG(seen.st_mode) and (seen.st_size, seen.st_mtime_ns) == (file.size, file.modified_ns)


def saved_files(folder: Path) -> Iterator[SavedFile]:
    """List the files of a folder, without those of unfinished saves. Files that disappear meanwhile are left out."""
    number = 0
    for at, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in _UNFINISHED_DUMPS]
        links = [name for name in names if os.path.islink(os.path.join(at, name))]  # noqa: PTH114, PTH118
        for name in (*files, *links):
            if _is_ours_or_unfinished(name):
                continue
            path = Path(at, name)
            with contextlib.suppress(FileNotFoundError):
                seen = path.lstat()
                relative = path.relative_to(folder).as_posix()
                if stat.S_ISLNK(seen.st_mode):
                    yield SavedFile(relative, 0, 0, 0, str(path.readlink()))
                elif stat.S_ISREG(seen.st_mode):
                    yield SavedFile(relative, seen.st_size, seen.st_mtime_ns, stat.S_IMODE(seen.st_mode))
            number += 1
            if number > MOST_FILES:
                raise TooManyFiles(f"{folder} has more than {MOST_FILES} files")


def is_safe(file: SavedFile) -> bool:
    """Whether a file that another agent has described stays inside the folder."""
    try:
        parts = job_files.split_path(file.path)
    except OSError:
        return False
    if _is_ours_or_unfinished(parts[-1]):
        return False
    if not file.link:
        return True
    target = PurePosixPath(file.link)
    up = next((number for number, part in enumerate(target.parts) if part != ".."), len(target.parts))
    # After a name, which may be that of a link to a folder further up, ".." could lead out.
    return not target.is_absolute() and up < len(parts) and ".." not in target.parts[up:]


def choose_safe(files: Iterable[SavedFile]) -> tuple[SavedFile, ...]:
    """Return the files that stay inside the folder. What lies behind a link does not count as inside."""
    files = tuple(filter(is_safe, files))
    links = {file.path for file in files if file.link}
    return tuple(file for file in files if links.isdisjoint(map(str, PurePosixPath(file.path).parents)))


def _is_ours_or_unfinished(name: str) -> bool:
    return name.startswith((_FETCHED, UPLOAD, _RUN)) or (name.startswith(".") and name.endswith((".tmp", ".part")))
