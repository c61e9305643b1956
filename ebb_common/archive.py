"""Archives of files that are sent from the submitter of a job to its nodes: tar, compressed, and named by their SHA-256.

The same files always produce the same archive: entries are sorted by name and have no times or owners. Archives are not
trusted: an entry that would be written outside the directory into which the archive is unpacked, or that is not a file, a
directory or a link within it, makes the whole archive invalid.
"""

import errno
import gzip
import hashlib
import io
import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MOST_ENTRIES = 100_000
MOST_UNPACKED = 4 << 30
"""Bytes of all files together."""
_LONGEST_NAME = 4096
_LONGEST_HEADER = 1 << 16
"""Bytes. Names and targets that are too long for an entry stand in headers of their own."""
_UNFIT = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
"""Errors of a file system that does not take a name: no fault of the disk, and the same at each try."""
_PIECE = 1 << 20
_LEVEL = 6
_SCRIPT, _PLAIN, _FOLDER = 0o755, 0o644, 0o755


_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)


class BadArchive(Exception):
    """An archive, or files to make one of, that cannot be unpacked safely; the message says which entry, and why."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive, and what it is named by."""

    data: bytes = field(repr=False)
    digest: str

    @property
    def size(self) -> int:
        return len(self.data)


def pack(root: Path, names: Iterable[str], contents: Iterable[tuple[str, bytes]] = ()) -> Archive:
    """Packs these files and links below `root`, named relative to it with slashes, and others with the `contents` given.

    Raises BadArchive for a link that leads out of `root`, and for what is neither a file nor a link; OSError.
    """
    given = dict(contents)
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted({*names, *given}):
            if name in given:
                entry = tarfile.TarInfo(name)
                entry.mode, entry.size = _PLAIN, len(given[name])
                tar.addfile(entry, io.BytesIO(given[name]))
            else:
                _add(tar, root, name)
    data = buffer.getvalue()
    return Archive(data, hashlib.sha256(data).hexdigest())


def _add(tar: tarfile.TarFile, root: Path, name: str) -> None:
    path = root / name
    found = path.lstat()
    entry = tarfile.TarInfo(name)
    if stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115 (text as it is)
        if (why := _leads_out(name, entry.linkname)) is not None:
            raise BadArchive(f"the link {name} {why}")
        tar.addfile(entry)
    elif stat.S_ISREG(found.st_mode):
        with path.open("rb") as file:
            data = file.read()  # its size may change while it is read
        entry.mode, entry.size = (_SCRIPT if found.st_mode & 0o100 else _PLAIN), len(data)
        tar.addfile(entry, io.BytesIO(data))
    else:
        raise BadArchive(f"{name} is neither a file nor a link")


def unpack(packed: IO[bytes], into: Path) -> None:
    """Unpacks an archive into a directory, which is made and must not be there.

    Raises BadArchive, and OSError where the disk is at fault. What was unpacked until then is left there.
    """
    into.mkdir()
    links: set[str] = set()
    seen: set[str] = set()
    left = MOST_UNPACKED
    try:
        with gzip.GzipFile(fileobj=packed) as plain, tarfile.open(fileobj=plain, mode="r|", tarinfo=_Entry) as tar:
            for entry in _entries(tar):
                name = _check_entry(entry, seen, links)
                target = into / name
                if entry.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                if entry.issym():
                    links.add(name)
                    target.symlink_to(entry.linkname)
                    continue
                left -= entry.size
                if left < 0:
                    raise BadArchive(f"its files have more than {MOST_UNPACKED >> 30} GiB")
                _write(tar, entry, target)
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, UnicodeError, ValueError, RecursionError) as error:
        raise BadArchive(f"it is no archive of this kind, or is damaged ({error})") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise BadArchive(f"two entries of it exclude each other ({error.filename})") from error
    except OSError as error:
        if error.errno not in _UNFIT:
            raise
        raise BadArchive(f"an entry cannot be written here: {error.strerror} ({str(error.filename)[-200:]!r})") from error


class _Entry(tarfile.TarInfo):
    """An entry of an archive from elsewhere: its headers are not read into memory whatever their size."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in _TYPES and self.size > _LONGEST_HEADER:
            raise BadArchive(f"a header of it has {self.size:,} bytes")
        found: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]  # typeshed does not know it
        return found


def _entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for count, entry in enumerate(tar):
        if count >= MOST_ENTRIES:
            raise BadArchive(f"it has more than {MOST_ENTRIES:,} entries")
        yield entry


def _check_entry(entry: tarfile.TarInfo, seen: set[str], links: set[str]) -> str:
    """The name of the entry, as it is to be written. Raises BadArchive."""
    name = entry.name
    shown = repr(name[:200])
    parts = name.split("/")
    if not name or len(os.fsencode(name)) > _LONGEST_NAME or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise BadArchive(f"the entry {shown} is not named by a path below the directory")
    if name in seen:
        raise BadArchive(f"the entry {shown} is there twice")
    seen.add(name)
    if any("/".join(parts[:depth]) in links for depth in range(1, len(parts))):
        raise BadArchive(f"the entry {shown} lies behind a link")
    if entry.issym() and (why := _leads_out(name, entry.linkname)) is not None:
        raise BadArchive(f"the link {shown} {why}")
    if entry.type not in _TYPES or entry.sparse is not None:
        raise BadArchive(f"the entry {shown} is neither a file, a directory nor a symbolic link")
    return name


def _leads_out(name: str, target: str) -> str | None:
    """Why a link may not be; None: it stays inside."""
    if not target or "\0" in target:
        return "has no target"
    if target.startswith("/"):
        return f"leads out of the directory, to {target[:200]}"
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return f"leads out of the directory, to {target[:200]}" if reached == ".." or reached.startswith("../") else None


def _write(tar: tarfile.TarFile, entry: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(entry)
    assert source is not None  # it is a file
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(target, flags, _SCRIPT if entry.mode & 0o100 else _PLAIN)
    with open(descriptor, "wb") as file:  # noqa: PTH123 (of a descriptor)
        while data := source.read(_PIECE):
            file.write(data)
