"""A file of which checksums are taken while it is written, so that nothing has to be read again for them.

The checksums of a file are the CRC-32 of each 8 MiB of it, as hexadecimal digits one after the other. They find what a disk, a
link or a loss of power has changed, at a fraction of the time of a cryptographic digest, and several threads check one file.
"""

import hashlib
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_LARGE = 1 << 20
"""Bytes from which on a thread of its own takes the checksums of what is being written."""
_BLOCK = 8 << 20
"""Bytes for each checksum. It is a part of the format of checkpoints."""
_BUFFER = 1 << 20


class _Checksums:
    """Checksums of a stream of bytes."""

    def __init__(self) -> None:
        self._complete: list[int] = []
        self._crc, self._length = 0, 0  # of the incomplete block

    def update(self, view: memoryview) -> None:
        at = 0
        while at < view.nbytes:
            taken = view[at : at + _BLOCK - self._length]
            self._crc = zlib.crc32(taken, self._crc)
            self._length += taken.nbytes
            at += taken.nbytes
            if self._length == _BLOCK:
                self._complete.append(self._crc)
                self._crc, self._length = 0, 0

    def text(self) -> str:
        return _text([*self._complete, *([self._crc] if self._length else [])])


class ChecksummedFile:
    """A new file to which bytes are only appended. It has what `pickle`, `zipfile`, `numpy.save` and `torch.save` ask for.

    With `durable`, leaving the `with` block in good order has the file on the disk.
    """

    def __init__(self, path: Path, durable: bool = True) -> None:
        self._file = path.open("wb")
        self._durable = durable
        self._checksums = _Checksums()
        self._thread: ThreadPoolExecutor | None = None
        self.length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        with self._file:
            if kind is None and self._durable:
                self._file.flush()
                os.fsync(self._file.fileno())

    @property
    def checksums(self) -> str:
        return self._checksums.text()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        self.length += view.nbytes
        if view.nbytes < _LARGE:
            self._checksums.update(view)
            self._file.write(view)
            return view.nbytes
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor  # which a small state does not need

            self._thread = ThreadPoolExecutor(1, thread_name_prefix="ebb-checksums")
        for at in range(0, view.nbytes, _BLOCK):
            part = view[at : at + _BLOCK]
            checking = self._thread.submit(self._checksums.update, part)
            try:
                self._file.write(part)
            finally:
                checking.result()  # it uses memory that may change or go once this returns
        return view.nbytes

    def flush(self) -> None:
        self._file.flush()


def threads() -> "ThreadPoolExecutor":
    """As many as there are processors, for `checksums`."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="ebb-checksums")


def checksums(path: Path, pool: "ThreadPoolExecutor") -> str:
    """Return the checksums of a file as it is now. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        blocks = range(0, os.fstat(file.fileno()).st_size, _BLOCK)
        return _text(list(pool.map(lambda at: _block_checksum(file.fileno(), at), blocks)))


def _block_checksum(descriptor: int, at: int) -> int:
    buffer, found, end = memoryview(bytearray(_BUFFER)), 0, at + _BLOCK
    while at < end and (got := os.preadv(descriptor, [buffer[: end - at]], at)):
        found = zlib.crc32(buffer[:got], found)
        at += got
    return found


def _text(found: list[int]) -> str:
    return "".join(f"{each:08x}" for each in found)


def blake2b(path: Path) -> str:
    """The digest that manifests of version 1 have. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
