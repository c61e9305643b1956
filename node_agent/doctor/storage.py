"""The storage of the agent's state, and of the work that jobs save."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from node_agent.doctor.findings import Finding, ok, problem, warning

_IN_MEMORY = ("tmpfs", "ramfs")
_OF_CONTAINERS = ("overlay", "aufs")
_OF_THE_NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "glusterfs",
    "afs",
    "9p",
    "virtiofs",
    "panfs",
)
_TIGHT, _FULL = 1 << 30, 64 << 20
_TIGHT_FILES, _FULL_FILES = 10_000, 100


@dataclass(frozen=True, slots=True)
class Mount:
    place: str
    kind: str
    source: str

    @property
    def shared(self) -> bool:
        """Whether other machines may see the same files."""
        return self.kind in _OF_THE_NETWORK or self.kind.startswith("fuse.")


def mount_of(path: Path, mountinfo: str) -> Mount:
    """Return the file system of a path, by the text of /proc/self/mountinfo."""
    found = Mount("/", "unknown", "unknown")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        place = before.split()[4].replace("\\040", " ")
        # Of several mounts at one place, the last is visible; and a deeper one hides those around it.
        if path.is_relative_to(place) and len(place) >= len(found.place):
            kind, source, *_ = after.split()
            found = Mount(place, kind, source)
    return found


def state(path: Path, mountinfo: str, agent: int) -> Iterator[Finding]:
    """`agent`: the process that holds the directory; 0 if it is free."""
    place = nearest_existing(path)
    if not place.is_dir():
        yield problem(f"{path} cannot be a folder: {place} is something else", "name another one: state: in the file")
        return
    if (refused := try_to_write(place)) is not None:
        yield problem(f"{place} cannot be written: {refused}", _make_writable(path, refused))
    elif agent:
        yield ok(f"{path} belongs to the agent that runs (pid {agent})")
    else:
        yield ok(f"{path} {'can be written' if place == path else f'can be made in {place}'}")
    mount = mount_of(place.resolve(), mountinfo)
    if mount.kind in _IN_MEMORY:
        yield warning(
            f"{path} is in memory ({mount.kind} on {mount.place}): a reboot loses the logs of all runs",
            "take a folder on a disk, such as /var/lib/ebb-agent",
        )
    elif mount.kind in _OF_CONTAINERS:
        yield warning(
            f"{path} is in a container's own layer ({mount.kind}) and goes with it: the node then counts as rebooted",
            "mount a volume there",
        )
    elif mount.shared:
        yield warning(
            f"{path} is on the network ({mount.kind} from {mount.source}): the SQLite database in it needs a local disk",
            "take a folder on a local disk, such as /var/lib/ebb-agent",
        )
    yield from room(place)


def checkpoints(path: Path, mountinfo: str, uid: int) -> Iterator[Finding]:
    place = nearest_existing(path)
    if not place.is_dir():
        yield problem(f"{path} cannot be a folder: {place} is something else", "name another one: checkpoints: in the file")
        return
    if (refused := try_to_write(place)) is not None:
        yield problem(f"{place} cannot be written: {refused}", _make_writable(path, refused))
    mount = mount_of(place.resolve(), mountinfo)
    if mount.shared:
        yield ok(
            f"{path} is on {mount.kind} from {mount.source}; the agents of all nodes must have this one's user number, {uid}"
        )
    else:
        yield warning(
            f"{path} is on this machine alone ({mount.kind} on {mount.place}): a job that moves fetches its checkpoint from "
            "the agent here, and finds none while this node is silent",
            "mount storage that all nodes share, and name it by checkpoints: in the file, or set checkpoint_store; with one "
            "node, nothing",
        )
    yield from room(place)


def room(path: Path) -> Iterator[Finding]:
    sizes = os.statvfs(path)
    free, files = sizes.f_bavail * sizes.f_frsize, sizes.f_favail
    counts_files = sizes.f_files > 0  # not every file system does
    said = f"{_size(free)} free on the file system of {path}" + (f", and room for {files} files" if counts_files else "")
    if free < _FULL or (counts_files and files < _FULL_FILES):
        yield problem(said, "make room: no run can be started on a full disk")
    elif free < _TIGHT or (counts_files and files < _TIGHT_FILES):
        yield warning(said, "make room soon: no run can be started on a full disk")
    else:
        yield ok(said)


def lock_holder(state: Path, locks: str) -> int:
    """Return the agent that holds this state directory, by the text of /proc/locks; 0 for none. The lock itself is not tried:
    that would keep out an agent that starts now."""
    with contextlib.suppress(OSError, ValueError):
        pid, inode = int((state / "lock").read_text()), (state / "lock").stat().st_ino
        for line in locks.splitlines():
            fields = line.split()
            if "FLOCK" in fields and fields[4] == str(pid) and fields[5].rpartition(":")[2] == str(inode):
                return pid
    return 0


def nearest_existing(path: Path) -> Path:
    """Return the path itself, or its nearest parent that exists."""
    while not os.path.exists(path) and path != path.parent:  # noqa: PTH110 (Path.exists raises where it may not look)
        path = path.parent
    return path


def try_to_write(folder: Path) -> OSError | None:
    """Return why no file can be written there. Permissions do not suffice: disks are full, and mounts read-only."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".ebb-doctor-") as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return OSError(error.errno, error.strerror)
    return None


def _make_writable(path: Path, refused: OSError) -> str:
    if isinstance(refused, PermissionError):
        return f"give it to the agent's user: install -d -o {os.geteuid()} {path} (or run the doctor as that user)"
    return "make room there, or mount it so that it can be written"


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= _TIGHT else f"{count >> 20} MiB"
