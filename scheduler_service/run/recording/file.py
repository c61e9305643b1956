"""The file of a recording: lines that are only ever added."""

import fcntl
import gzip
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

PACKED_AT = 1 << 16
"""Characters that are packed together, where the file's name ends with .gz."""
BEGINNING = b'["Section",'


class File:
    """Lines that are only ever added, readable by its owner alone. What was written is not torn, unless a machine fails."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and ValueError where the file is something else or another process writes it."""
        self._packs = path.suffix == ".gz"
        self._buffer: list[str] = []
        self._buffered = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"another process records to {path}") from None
            self._size = os.fstat(self._fd).st_size
            if self._size:
                self._go_on(path)
            os.fchmod(self._fd, 0o600)
        except BaseException:
            os.close(self._fd)
            raise

    def _go_on(self, path: Path) -> None:
        """Checks what is there, and removes a line that a killed process has left unfinished."""
        begins = os.pread(self._fd, 2, 0) == b"\x1f\x8b" if self._packs else os.pread(self._fd, len(BEGINNING), 0) == BEGINNING
        if not begins:
            raise ValueError(f"{path} is there, and is no recording: name another file")
        if not self._packs:
            with mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ) as content:
                self._size = content.rfind(b"\n") + 1
            os.ftruncate(self._fd, self._size)

    def write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._buffer.append(line + "\n")
            self._buffered += len(line)
            if self._buffered >= PACKED_AT:
                self.flush()
        if not self._packs:
            self.flush()

    def flush(self) -> None:
        text = "".join(self._buffer).encode()
        self._buffer.clear()
        self._buffered = 0
        content = memoryview(gzip.compress(text, compresslevel=3) if self._packs else text)
        try:
            while content:
                content = content[os.write(self._fd, content) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size = os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)
