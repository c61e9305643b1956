"""Checkpoints of several files: a folder with a file for each part, a manifest with checksums, and a reference to both.

    checkpoints/
      checkpoint-000002-00000031.ckpt        # a reference to the folder, written last by a Checkpointer
      checkpoint-step-00000120-run-000002/
        model.safetensors  optimizer.pt  scheduler.pt  job.pickle
        manifest.json                        # written after the parts: without it the folder is not complete

A folder is used only if a reference has its name and the digest of its manifest, and if the manifest has the checksums of each
part. So the rules of a Checkpointer hold for the whole folder: a checkpoint is whole or absent, a damaged one is reported and
the one before it is used, and the ranks of a gang choose a step that all of them have.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from client_sdk.training._storing import files
from client_sdk.training._storing.checksummed import ChecksummedFile, blake2b, checksums, threads
from client_sdk.training._storing.files import CheckpointError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MANIFEST = "manifest.json"
_VERSION = 2
"""Version 1 has the BLAKE2b digest of each part in the place of its checksums."""


class Saved(NamedTuple):
    """The contents of a folder."""

    folder: Path
    parts: dict[str, Any]
    about: dict[str, Any]
    """The writer's information about the checkpoint, such as its step."""


class Reference(files.Refers):
    """A folder's name and its manifest's digest. Inside `opening`, unpickling a reference returns the folder's contents."""

    def __init__(self, folder: str, digest: str) -> None:
        self.folder = folder
        self.digest = digest

    def __reduce__(self) -> tuple[Any, ...]:
        return _resolve, (self.folder, self.digest)


_opener: ContextVar[Callable[[Reference], Any] | None] = ContextVar("_opener", default=None)


def _resolve(folder: str, digest: str) -> Any:
    opener = _opener.get()
    reference = Reference(folder, digest)
    return reference if opener is None else opener(reference)


@contextmanager
def opening(opener: Callable[[Reference], Any]) -> Iterator[None]:
    """Inside this context, each reference that is unpickled becomes what `opener` makes of it."""
    token = _opener.set(opener)
    try:
        yield
    finally:
        _opener.reset(token)


def write(
    directory: Path, name: str, parts: Mapping[str, Any], about: Callable[[], Mapping[str, Any]], durable: bool = True
) -> Reference:
    """Writes the parts to a new folder of this name. On return the folder is complete, and durable unless said otherwise.

    `about` says what the manifest keeps about the checkpoint, and is asked when the parts are written.

    Raises OSError, such as for a full disk, and what writing a part raises. No folder is left then.
    """
    folder = new_folder(directory, name)
    try:
        said = {part: _write_part(folder, part, state, durable) for part, state in parts.items()}
        return seal(folder, said, about(), durable)
    except BaseException:
        _remove(folder)
        raise


def make_writable(directory: Path) -> None:
    """Makes the directory, and raises CheckpointError if no file can be made in it: not as late as at the first save."""
    import tempfile  # which a program that only counts its steps does not need

    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise CheckpointError(
            f"no checkpoint can be written to {directory} ({error.strerror}): make it writable, or choose another one"
        ) from error


def new_folder(directory: Path, name: str) -> Path:
    """A folder that no one has: a run that was killed may have left one of this name."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1 << 20):
        folder = directory / (name if number == 1 else f"{name}.{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise CheckpointError(f"{directory} has more than a million folders {name}.*: remove those that no .ckpt file refers to")


def _write_part(folder: Path, part: str, state: Any, durable: bool) -> dict[str, Any]:
    from client_sdk.training._storing import formats  # here, so that the start of a training does not wait for it

    format_name = formats.choose(state)
    found = formats.FORMATS[format_name]
    path = folder / f"{part}{found.suffix}"
    with ChecksummedFile(path, durable) as file:
        extra = found.write(file, state)
    said = {"file": path.name, "format": format_name, "bytes": file.length, "crc32": file.checksums}
    return said if extra is None else said | {"extra": extra}


def _facts(path: Path) -> dict[str, Any]:
    """The size and the checksums of a file, which is durable on return."""
    with path.open("rb") as file, threads() as pool:
        os.fsync(file.fileno())
        return {"bytes": os.fstat(file.fileno()).st_size, "crc32": checksums(path, pool)}


def seal(folder: Path, parts: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any], durable: bool = True) -> Reference:
    """Writes the manifest of a folder whose parts are written, and durable if this is to be."""
    text = json.dumps({"version": _VERSION, "about": about, "parts": parts}, indent=1).encode()
    unfinished = folder / f".{MANIFEST}.tmp"
    with unfinished.open("wb") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    unfinished.replace(folder / MANIFEST)
    if durable:
        files.sync_directory(folder)
        files.sync_directory(folder.parent)
    return Reference(folder.name, hashlib.blake2b(text, digest_size=32).hexdigest())


def seal_existing(folder: Path, about: Mapping[str, Any]) -> Reference:
    """Writes the manifest of a folder, or of a single file's folder, that a framework has written. Each file is a part."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in (MANIFEST, f".{MANIFEST}.tmp"))
    parts = {}
    for path in found:
        name = str(path.relative_to(folder))
        parts[name] = {"file": name, "format": "framework", **_facts(path)}
    return seal(folder, parts, about)


def check(directory: Path, reference: Reference) -> tuple[Path, dict[str, Any]]:
    """The folder of a reference, and its manifest. Raises CheckpointError if any byte differs from what was written."""
    folder = directory / reference.folder
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{folder} is not complete: its manifest cannot be read: {error.strerror}") from error
    if hashlib.blake2b(text, digest_size=32).hexdigest() != reference.digest:
        raise CheckpointError(f"{folder / MANIFEST} is damaged: its content does not match its checksum")
    return folder, _verify_manifest(folder, text)


def _verify_manifest(folder: Path, text: bytes) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(text)
    if manifest["version"] not in (1, _VERSION):
        raise CheckpointError(
            f"{folder} has the format version {manifest['version']}, and this program reads {_VERSION}: "
            "update the package ebb-cluster"
        )
    with threads() as pool:
        for part, said in manifest["parts"].items():
            _check_part(folder / said["file"], part, said, pool)
    return manifest


def _check_part(path: Path, part: str, said: Mapping[str, Any], pool: "ThreadPoolExecutor") -> None:
    try:
        same = blake2b(path) == said["blake2b"] if "blake2b" in said else checksums(path, pool) == said["crc32"]
    except OSError as error:
        raise CheckpointError(f"{path}, part {part!r} of a checkpoint, cannot be read: {error.strerror}") from error
    if not same:
        raise CheckpointError(f"{path}, part {part!r} of a checkpoint, is damaged: its content does not match its checksum")


def read(directory: Path, reference: Reference) -> Saved:
    """Everything that a folder holds. Raises CheckpointError, and what reading a part raises."""
    return _contents(*check(directory, reference))


def read_folder(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The parts of a checkpoint folder by name, such as for an evaluation. Raises CheckpointError if the folder is damaged."""
    folder = Path(folder)
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{folder} is not complete: its manifest cannot be read: {error.strerror}") from error
    return _contents(folder, _verify_manifest(folder, text)).parts


def _contents(folder: Path, manifest: dict[str, Any]) -> Saved:
    from client_sdk.training._storing import formats

    if foreign := [part for part, said in manifest["parts"].items() if said["format"] not in formats.FORMATS]:
        raise CheckpointError(
            f"{folder} has files that another program has written, such as {foreign[0]}: read it with that program, or with "
            "job.checkpointable(sharded=True) if it is sharded"
        )
    parts = {
        part: formats.FORMATS[said["format"]].read(folder / said["file"], said.get("extra"))
        for part, said in manifest["parts"].items()
    }
    return Saved(folder, parts, manifest["about"])


def referenced_folders(directory: Path, name: str) -> set[str]:
    """The folders to which the checkpoints of this name refer. Raises CheckpointError and OSError if one cannot be read."""
    found = [files.read(files.path_of(directory, name, key)) for key in files.present(directory, name)]
    return {reference.folder for reference in found if isinstance(reference, Reference)}


def clear(directory: Path, name: str, keep_every: int | None, checkpoints: str | None = None) -> None:
    """Removes the folders of this name to which no checkpoint refers, but for complete ones of every `keep_every`-th step.
    `checkpoints` is the name of the checkpoints that may refer to them if it is another one: those of all ranks then do.

    Removes nothing if one of the checkpoints cannot be read, because its folder is unknown.
    """
    pattern = re.compile(rf"{re.escape(name)}-step-([0-9]+)-run-[0-9]+(?:\.[0-9]+)?")
    if not directory.is_dir():
        return
    try:
        names = (
            [name] if checkpoints is None else {checkpoints + tag for tag, _ in files.all_checkpoints(directory, checkpoints)}
        )
        used = set().union(*(referenced_folders(directory, each) for each in names))
    except (CheckpointError, OSError):
        return
    for folder in directory.iterdir():
        if (match := pattern.fullmatch(folder.name)) is None or folder.name in used:
            continue
        kept = keep_every is not None and int(match[1]) % keep_every == 0 and (folder / MANIFEST).exists()
        if not kept:
            _remove(folder)


def remove_unsealed(folder: Path) -> None:
    """Removes a folder that is no checkpoint, as it has no manifest."""
    if not (folder / MANIFEST).exists():
        _remove(folder)


def _remove(folder: Path) -> None:
    import shutil  # which a program that only counts its steps does not need

    shutil.rmtree(folder, ignore_errors=True)


def folder_name(name: str, step: int, run: int) -> str:
    return f"{name}-step-{step:08}-run-{run:06}"
