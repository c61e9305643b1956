"""A folder made in advance: where the disk is busy a new file or folder takes half a millisecond, and a new name a tenth of it.

The launcher imports this, and so it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os

_OPEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class PreparedFolder:
    """A folder with empty `files` in it, which are held open, at `path` until it is taken."""

    def __init__(self, path: str, files: tuple[str, ...] = ()) -> None:
        self.path = path
        self._files = files
        self._open: list[int] | None = None

    @property
    def missing(self) -> bool:
        return self._open is None

    def make(self) -> None:
        """Makes it, unless it is there; it may also be left from before. Where it cannot be made there is none."""
        if self._open is not None:
            return
        opened: list[int] = []
        try:
            with contextlib.suppress(FileExistsError):
                os.makedirs(self.path)  # noqa: PTH103
            for name in self._files:
                opened.append(os.open(f"{self.path}/{name}", _OPEN, 0o644))
        except OSError:
            _close(opened)
        else:
            self._open = opened

    def take(self, path: str) -> list[int] | None:
        """Gives the folder this path, and its files, open. None, and nothing has changed, where none is prepared or it
        cannot go there: the path is that of a folder which is not empty, say, or its parent is missing."""
        if self._open is None:
            return None
        try:
            os.rename(self.path, path)  # noqa: PTH104
        except OSError:
            if not os.path.isdir(self.path):  # noqa: PTH112
                self.remove()  # somebody has: another is to be made
            return None
        opened, self._open = self._open, None
        return opened

    def remove(self) -> None:
        """There is none any more."""
        if self._open is not None:
            _close(self._open)
            self._open = None
            remove(self.path, self._files)


def remove(path: str, files: tuple[str, ...]) -> None:
    """What a prepared folder may have left. Whoever made it may yet take it: before it loses a file it has another name."""
    with contextlib.suppress(OSError):
        gone = f"{path}.gone"
        os.rename(path, gone)  # noqa: PTH104
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{gone}/{name}")  # noqa: PTH108
        os.rmdir(gone)  # noqa: PTH106


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
