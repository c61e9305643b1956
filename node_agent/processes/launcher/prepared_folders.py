"""A folder made in advance: on a busy disk a new file or folder takes half a millisecond, and a new name a tenth of it.

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
        """Make the folder, unless it is ready; it may also be left from before. If it cannot be made, none is ready."""
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

    def move_to(self, path: str) -> list[int] | None:
        """Give the folder this path, and return its open files. Return None, with nothing changed, if none is prepared or it
        cannot be moved there, for example because a folder there is not empty, or its parent is missing."""
        if self._open is None:
            return None
        try:
            os.rename(self.path, path)  # noqa: PTH104
        except OSError:
            if not os.path.isdir(self.path):  # noqa: PTH112
                self.remove()  # it was removed: another one has to be made
            return None
        opened, self._open = self._open, None
        return opened

    def remove(self) -> None:
        """Remove the folder."""
        if self._open is not None:
            _close(self._open)
            self._open = None
            remove(self.path, self._files)


def remove(path: str, files: tuple[str, ...]) -> None:
    """Remove what a prepared folder may have left. Its maker may still take it: so it is renamed before it loses a file."""
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
