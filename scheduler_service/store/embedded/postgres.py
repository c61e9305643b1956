"""The programs of PostgreSQL: what makes a database, and a server that is started on a socket and ended again."""

import logging
import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from scheduler_service.store.embedded import orphans
from scheduler_service.store.embedded.binaries import Identity
from scheduler_service.store.errors import EmbeddedError

STOP_LIMIT = 30.0
"""Seconds."""
_USER = "ebb"
_FRESH = "data.new-"
_LONGEST_SOCKET_PATH = 100  # the system's limit is 107 bytes, or 103 elsewhere
_LISTS = frozenset(',"')  # in the name of a socket's folder libpq, or the server, takes them for a list

log = logging.getLogger(__name__)


def url_of(socket_dir: Path) -> str:
    """Return the database URL of the server whose socket is in this folder."""
    return f"postgresql://{_USER}@/postgres?host={quote(str(socket_dir), safe='')}"


def own_dir(path: Path, identity: Identity) -> None:
    """A folder that the server's user owns and no other (but root) can enter."""
    path.mkdir(mode=0o700, exist_ok=True)
    if identity.other:
        os.chown(path, identity.uid, identity.gid)
    path.chmod(0o700)


def initialise(bin_dir: Path, home: Path, identity: Identity, durable: bool) -> None:
    """Run initdb in a folder next to `data`, which is renamed to `data` when complete. Each has a unique name: an initdb whose
    user was killed keeps writing to its folder for a moment."""
    for stale in home.glob(f"{_FRESH}*"):
        shutil.rmtree(stale, ignore_errors=True)
    fresh = home / f"{_FRESH}{secrets.token_hex(4)}"
    options = ["-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions"]
    if not durable:
        options.append("--no-sync")
    done = subprocess.run(
        identity.command(bin_dir / "initdb", "-D", fresh, *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=home,
        env=_environment(),
        start_new_session=True,
        check=False,
    )
    if done.returncode:
        raise EmbeddedError(home, f"initdb failed with status {done.returncode}:\n{done.stdout[-2000:]}")
    fresh.rename(home / "data")


def make_socket_dir(home: Path, identity: Identity) -> Path:
    """In `home`, or in /tmp where the path of the socket would be too long, or a list to PostgreSQL."""
    path = home / "socket"
    if len(bytes(path / ".s.PGSQL.5432")) > _LONGEST_SOCKET_PATH or _LISTS.intersection(str(path)):
        path = Path(tempfile.mkdtemp(prefix=orphans.SOCKET_DIR_PREFIX, dir="/tmp"))
    own_dir(path, identity)
    return path


def launch(bin_dir: Path, home: Path, socket_dir: Path, identity: Identity, durable: bool) -> subprocess.Popen[bytes]:
    """Starts the server, whose log goes to `home`; it takes a moment until it answers."""
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": f'"{socket_dir}"',
        "unix_socket_permissions": "0700" if not identity.other else "0777",  # the folder keeps others out
        "shared_buffers": "64MB",
        "max_connections": "50",
        "fsync": "on" if durable else "off",
        "synchronous_commit": "on" if durable else "off",
        "full_page_writes": "on" if durable else "off",
        "jit": "off",
        "max_wal_size": "256MB",
        "log_min_messages": "warning",
        "timezone": "UTC",
    }
    arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    path = home / "log"
    # A new log at every start keeps it small. The previous one may say why the server ended.
    if path.exists():
        path.replace(path.with_name("log.1"))
    with path.open("wb") as output:
        if identity.other:
            os.chown(path, identity.uid, identity.gid)
        return subprocess.Popen(
            identity.command(bin_dir / "postgres", "-D", home / "data", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=home,
            env=_environment(),
            start_new_session=True,  # Ctrl-C in a terminal must reach us, not the server
        )


def _environment() -> dict[str, str]:
    """Not ours: PG* variables would change what the server does."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def end(server: "subprocess.Popen[bytes]") -> None:
    """Fast shutdown; if that takes too long, immediate, after which the next start recovers from the log."""
    for signal, limit in ((orphans.FAST, STOP_LIMIT), (orphans.IMMEDIATE, 5.0)):
        server.send_signal(signal)
        try:
            server.wait(limit)
            return
        except subprocess.TimeoutExpired:
            log.warning("PostgreSQL (pid %d) has not stopped after %.0f s", server.pid, limit)
    server.kill()
    server.wait()


def tail(path: Path) -> str:
    """The end of a log."""
    try:
        return path.read_text("utf-8", "replace")[-2000:]
    except OSError as error:
        return f"({error})"
