"""The only module through which the agent and the launcher open files in folders that a job is given.

A job may put anything under any name there: a FIFO, a link to another place, a socket, a folder, a file without an end. So a
name is looked up in the folder by its descriptor, no link is followed, no open waits, only plain files are read, and at most as
many bytes as the caller says. What is written gets a fresh file, which then takes the name: nothing that a job has put there is
opened for that. `open_below` is for trees, and follows no link in any part of a path.

A folder is trusted up to its own name: jobs are given the folder, and not those above it.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Content:
    """The content of a file. `data` is None if the file is missing or cannot be used; `why` says why it cannot be used."""

    __slots__ = ("data", "why")

    def __init__(self, data: bytes | None = None, why: str = "") -> None:
        self.data = data
        self.why = why

    @property
    def text(self) -> str:
        """The content as text; empty if `data` is None."""
        return "" if self.data is None else self.data.decode(errors="replace")


class NotPlain(OSError):
    """Something else than a plain file has the name."""


# Reading.


def read_file(folder: str, name: str, most: int) -> Content:
    """Return the first `most` bytes of a file. Raises nothing."""
    try:
        descriptor = open_file(folder, name)
    except FileNotFoundError:
        return Content()
    except (OSError, ValueError) as error:
        # Where a folder above is none, there is no file either.
        gone = isinstance(error, NotADirectoryError) and not os.path.lexists(folder)
        return Content() if gone else Content(None, describe_fault(name, error))
    try:
        return Content(_read_up_to(descriptor, most))
    except OSError as error:
        return Content(None, describe_fault(name, error))
    finally:
        os.close(descriptor)


def open_file(folder: str, name: str) -> int:
    """Open a plain file for reading. Raises OSError."""
    return open_below(folder, name, READ)


def open_below(folder: str, path: str, flags: int = READ, mode: int = 0o600) -> int:
    """Open a plain file below a folder. Raises OSError, also if any part of the path is a link, or leads out of the folder."""
    try:
        at, name = _open_parent(folder, path)
        try:
            return _open_plain(at, name, flags, mode)
        finally:
            os.close(at)
    except OSError as error:
        error.filename = f"{folder}/{path}"
        raise


def has_file(folder: str, name: str) -> bool:
    """Whether a plain file has this name."""
    return stat.S_ISREG(_mode_of(folder, name))


def find_unusable(folder: str, names: tuple[str, ...]) -> list[str]:
    """Say of each of these names that something else than a plain file has, what that is."""
    found = ((name, _mode_of(folder, name)) for name in names)
    return [f"{name} is {_kind(mode)}" for name, mode in found if mode and not stat.S_ISREG(mode)]


def describe_fault(name: str, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{name}: {reason or error}"


# Writing.


def write_file(folder: str, name: str, data: bytes, mode: int = 0o644) -> None:
    """Give this name to a new file, whatever has the name now. Raises OSError, with the name unchanged."""
    at, name = _open_parent(folder, name)
    try:
        new = f".{name}.{os.urandom(6).hex()}.tmp"
        descriptor = os.open(new, _NEW, mode, dir_fd=at)
        try:
            try:
                _write_all(descriptor, data)
            finally:
                os.close(descriptor)
            _rename(at, new, at, name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=at)
            raise
    finally:
        os.close(at)


def touch_file(folder: str, name: str) -> None:
    """Make an empty file, unless a plain file has the name. Raises OSError."""
    if not has_file(folder, name):
        write_file(folder, name, b"")


def open_to_append(folder: str, name: str) -> int:
    """Open a plain file at its end, and make it if the name is free. Raises OSError."""
    return open_below(folder, name, _WRITE | os.O_APPEND | os.O_CREAT, 0o644)


def append_text(folder: str, name: str, text: str) -> None:
    """Append to a plain file that is there. Raises OSError."""
    descriptor = open_own(folder, name, os.O_APPEND)
    try:
        _write_all(descriptor, text.encode())
    finally:
        os.close(descriptor)


def open_own(folder: str, name: str, more: int = 0) -> int:
    """Open a plain file for writing in place. Raises OSError, also if the file has another name elsewhere."""
    descriptor = open_below(folder, name, _WRITE | more)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise NotPlain(errno.EMLINK, "the file has another name", name)
    return descriptor


def create_file(folder: str, name: str) -> int:
    """Make a file and open it for writing. Raises FileExistsError if anything has the name, and OSError."""
    return open_below(folder, name, _NEW, 0o644)


def make_folder(folder: str, path: str = "") -> None:
    """Make a folder, and below it the folders of a path; what is in their way, and is none, is moved aside. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.makedirs(folder)  # noqa: PTH103
    current = os.open(folder, _FOLDER)
    try:
        for part in split_path(path) if path else ():
            if not stat.S_ISDIR(_mode_at(current, part)):
                _move_aside(current, part)
                os.mkdir(part, dir_fd=current)
            inner = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = inner
    finally:
        os.close(current)


def remove_file(folder: str, name: str) -> None:
    """Remove what has this name, but no folder. Raises OSError, though not if the name is free."""
    try:
        at, name = _open_parent(folder, name)
    except FileNotFoundError:
        return
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)
    finally:
        os.close(at)


def move_file(folder: str, name: str, into: str, new: str = "") -> bool:
    """Move a plain file to another folder, there as `new` if that is said, and return whether there was one. Raises OSError."""
    if not has_file(folder, name):
        return False
    at, inside = os.open(folder, _FOLDER), -1
    try:
        inside = os.open(into, _FOLDER)
        _rename(at, name, inside, new or name)
    finally:
        os.close(at)
        if inside >= 0:
            os.close(inside)
    return True


def link_file(folder: str, path: str, into: str) -> bool:
    """Give a plain file below a folder the same path below another one, where its parent exists; return whether that worked."""
    try:
        (at, name), there = _open_parent(folder, path), -1
        try:
            there, _ = _open_parent(into, path)
            if not stat.S_ISREG(_mode_at(at, name)):
                return False
            os.link(name, name, src_dir_fd=at, dst_dir_fd=there, follow_symlinks=False)
        finally:
            os.close(at)
            if there >= 0:
                os.close(there)
    except OSError:
        return False
    return True


def make_link(folder: str, path: str, target: str) -> None:
    """Make a symbolic link below a folder, in place of what has the name. Raises OSError."""
    at, name = _open_parent(folder, path)
    try:
        _move_aside(at, name)
        os.symlink(target, name, dir_fd=at)
    finally:
        os.close(at)


# Names and descriptors.


def split_path(path: str) -> tuple[str, ...]:
    """Return the parts of a path below a folder. Raises OSError for one that leads out of the folder."""
    parts = tuple(part for part in path.split("/") if part)
    if not parts or path.startswith("/") or "\0" in path or any(part in (".", "..") for part in parts):
        raise OSError(errno.EINVAL, f"{path!r} is not a name inside of a folder")
    return parts


def _open_parent(folder: str, path: str) -> tuple[int, str]:
    """Return a descriptor of the folder in which a path ends, and the last part of the path."""
    parts = split_path(path)
    current = os.open(folder, _FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = inner
    except BaseException:
        os.close(current)
        raise
    return current, parts[-1]


def _open_plain(at: int, name: str, flags: int, mode: int) -> int:
    descriptor = os.open(name, flags, mode, dir_fd=at)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        raise NotPlain(errno.EINVAL, f"{_kind(kind)}, and not a plain file", name)
    return descriptor


def _read_up_to(descriptor: int, most: int) -> bytes:
    found = b""
    while len(found) < most and (data := os.read(descriptor, most - len(found))):
        found += data
    return found


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _rename(at: int, name: str, into: int, new: str) -> None:
    try:
        os.rename(name, new, src_dir_fd=at, dst_dir_fd=into)
    except IsADirectoryError:
        _move_aside(into, new)
        os.rename(name, new, src_dir_fd=at, dst_dir_fd=into)


def _move_aside(at: int, name: str) -> None:
    """Free a name. What had it goes with its folder: removing it could take long."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f".{name}.{os.urandom(6).hex()}.aside", src_dir_fd=at, dst_dir_fd=at)


def _mode_of(folder: str, path: str) -> int:
    """Return the mode of what has a name; 0 if nothing has it, or that cannot be said."""
    try:
        at, name = _open_parent(folder, path)
    except OSError:
        return 0
    try:
        return _mode_at(at, name)
    finally:
        os.close(at)


def _mode_at(at: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")
