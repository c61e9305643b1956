"""Which files of a directory are its snapshot, and the archive that they make.

Inside a git repository these are the files that git tracks and those that it would track, as `git ls-files -co
--exclude-standard` lists them. Elsewhere they are all files, except what `.ebbignore` names, `.git` and `__pycache__`.
`.ebbignore` holds in a repository, too.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from client_sdk.errors import InvalidArgument
from client_sdk.units import format_memory
from ebb_common.archive import MOST_ENTRIES, Archive, BadArchive, pack

IGNORE_FILE = ".ebbignore"
LARGEST = 100 << 20
"""Bytes of the files of a snapshot together, before they are packed."""
_SHOWN = 5
_NEVER = frozenset({".git", "__pycache__"})


def snapshot(directory: str | os.PathLike[str], largest: int = LARGEST) -> Archive:
    """The archive of a directory. Raises InvalidArgument where it is too large, or cannot be one."""
    root = Path(directory)
    if not root.is_dir():
        raise InvalidArgument(f"there is no directory {os.fspath(directory)!r} to take a snapshot of")
    try:
        ignored = _patterns(root)
        names = [name for name in _files(root) if not _is_ignored(name, ignored)]
        if not names:
            raise InvalidArgument(
                f"{root.absolute()} has no files that a snapshot takes; see `git ls-files -co --exclude-standard` there, "
                f"and {IGNORE_FILE}"
            )
        _check_size(root, names, largest)
        return pack(root, names)
    except BadArchive as error:
        raise InvalidArgument(
            f"no snapshot of {root.absolute()} can be taken: {error}; name it in {IGNORE_FILE} to leave it out"
        ) from error
    except OSError as error:
        raise InvalidArgument(f"no snapshot of {root.absolute()} can be taken: {error}") from error


def _files(root: Path) -> list[str]:
    """Names relative to the root, of files and links."""
    return _git_files(root) if _is_in_git(root) else list(_walk(root, ""))


def _is_in_git(root: Path) -> bool:
    """Raises InvalidArgument where a repository is there and git does not read it: a walk would take what git ignores."""
    try:
        return _git(root, "rev-parse", "--is-inside-work-tree") == b"true\n"
    except (OSError, subprocess.CalledProcessError) as error:
        if not any((folder / ".git").exists() for folder in (root.absolute(), *root.absolute().parents)):
            return False
        raise _unread(root, error) from error


def _git(root: Path, *words: str) -> bytes:
    """Return the output of a git command. Raises OSError and CalledProcessError."""
    here = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(["git", *words], cwd=root, env=here, capture_output=True, check=True).stdout


def _unread(root: Path, error: OSError | subprocess.CalledProcessError) -> InvalidArgument:
    said = str(error) if isinstance(error, OSError) else " ".join(os.fsdecode(error.stderr).split())
    return InvalidArgument(f"git cannot say which files {root.absolute()} has: {said}; see `git status` there")


def _git_files(root: Path) -> list[str]:
    try:
        said = _git(root, "ls-files", "-co", "--exclude-standard", "-z")
    except (OSError, subprocess.CalledProcessError) as error:
        raise _unread(root, error) from error
    found: list[str] = []
    for name in dict.fromkeys(os.fsdecode(said).split("\0")):
        path = root / name
        if not name or not os.path.lexists(path):  # deleted, and git does not know yet
            continue
        if path.is_dir() and not path.is_symlink():  # a submodule, or a repository inside
            found += [f"{name.rstrip('/')}/{inner}" for inner in _files(path)]
        else:
            found.append(name)
    return found


def _walk(root: Path, below: str) -> Iterator[str]:
    for entry in sorted(os.scandir(root / below), key=lambda entry: entry.name):
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.name in _NEVER:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, name)
        elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
            yield name


def _patterns(root: Path) -> list[str]:
    try:
        lines = (root / IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _is_ignored(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern names the file or a directory that it is in. A pattern with a slash inside counts from the root, and
    one that ends with a slash names directories alone."""
    parts = name.split("/")
    return any(
        _matches(parts[:depth], pattern) for pattern in patterns for depth in range(1, len(parts) + (not pattern.endswith("/")))
    )


def _matches(parts: list[str], pattern: str) -> bool:
    from_root = "/" in pattern.rstrip("/")
    return fnmatch("/".join(parts) if from_root else parts[-1], pattern.strip("/"))


def _check_size(root: Path, names: list[str], largest: int) -> None:
    if len(names) > MOST_ENTRIES:
        raise InvalidArgument(
            f"{root.absolute()} has {len(names):,} files, and a snapshot may have {MOST_ENTRIES:,}; "
            f"name what the job does not need in {IGNORE_FILE}"
        )
    sizes = {name: (root / name).lstat().st_size for name in names}
    total = sum(sizes.values())
    if total > largest:
        most = sorted(names, key=lambda name: -sizes[name])[:_SHOWN]
        listed = ", ".join(f"{name} ({_mib(sizes[name])})" for name in most)
        raise InvalidArgument(
            f"a snapshot of {root.absolute()} would have {_mib(total)}, and may have {_mib(largest)}. "
            f"The largest files: {listed}. "
            f"Name what the job does not need in .gitignore or {IGNORE_FILE}, and keep data where the nodes can read it"
        )


def _mib(size: int) -> str:
    return f"{size} bytes" if size < 1 << 20 else format_memory(round(size / (1 << 20)))
