"""A file that is digested while it is written, so that nothing has to be read again for its checksum."""

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_LARGE = 1 << 20
"""Bytes from which on a thread of its own digests what is being written."""
_CHUNK = 8 << 20


def blake2b() -> Any:
    """The digest of the parts of a checkpoint."""
    return hashlib.blake2b(digest_size=32)


class DigestedFile:
    """A new file to which bytes are only appended. It has what `pickle`, `zipfile`, `numpy.save` and `torch.save` ask for.

    With `durable`, leaving the `with` block in good order has the file on the disk.
    """

    def __init__(self, path: Path, durable: bool = True) -> None:
        self._file = path.open("wb")
        self._durable = durable
        self._digest = blake2b()
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
    def blake2b(self) -> str:
        return str(self._digest.hexdigest())

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        self.length += view.nbytes
        if view.nbytes < _LARGE:
            self._digest.update(view)
            self._file.write(view)
            return view.nbytes
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor  # which a small state does not need

            self._thread = ThreadPoolExecutor(1, thread_name_prefix="ebb-digest")
        for at in range(0, view.nbytes, _CHUNK):
            chunk = view[at : at + _CHUNK]
            digesting = self._thread.submit(self._digest.update, chunk)
            try:
                self._file.write(chunk)
            finally:
                digesting.result()  # it uses memory that may change or go once this returns
        return view.nbytes

    def flush(self) -> None:
        self._file.flush()


def digests(paths: list[Path]) -> "list[Future[str]]":
    """Digests files, as many at the same time as there are processors. Results raise OSError."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="ebb-digest") as pool:
        return [pool.submit(digest, path) for path in paths]


def digest(path: Path) -> str:
    """Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, blake2b).hexdigest()
