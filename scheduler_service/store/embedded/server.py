"""A PostgreSQL server of our own, for one machine and for tests, from the binaries that a wheel brings (see `binaries`).

It listens on a Unix socket in a folder that only its user can enter, never on TCP. What it needs lies in one place:

    lock            held (flock) by the process that uses the server; its content is that process's id
    postgres/       belongs to the user that the server runs as, closed to others
        data/       the database
        socket/     the socket, unless its path is too long, or not for PostgreSQL: then it is in a folder of its own in /tmp
        log         what the server says

PostgreSQL refuses to run as root. When we are root, it runs as `nobody`, and where `nobody` cannot reach the data folder
that was asked for, a folder under the state folder takes its place. Nothing else of the system is changed.
"""

import atexit
import fcntl
import logging
import os
import shutil
import subprocess
import time
from hashlib import blake2b
from pathlib import Path
from types import TracebackType

import psycopg

from scheduler_service.store.embedded import orphans
from scheduler_service.store.embedded.binaries import Identity, find_binaries, make_dir, reachable, who_runs_it
from scheduler_service.store.embedded.postgres import (
    STOP_LIMIT,
    end,
    initialise,
    launch,
    make_socket_dir,
    own_dir,
    tail,
    url_of,
)
from scheduler_service.store.errors import EmbeddedError, InUse

STATE_DIR = Path("/var/lib/ebb")
"""Root's state folder for files that the unprivileged server must reach."""

_START_LIMIT = 60.0  # seconds; recovery after a crash may take a while

log = logging.getLogger(__name__)


class Embedded:
    """The server of one data folder, used by one process at a time.

        with Embedded(Path("/srv/ebb")) as url:
            engine = open_engine(url)

    `state_dir` is the state folder for root, `durable=False` gives up fsync (for tests alone). As long as it is started, an
    exit of the interpreter stops it too; after a kill -9 the server keeps running, and the next `start` replaces it.
    """

    def __init__(self, data_dir: Path | str, *, state_dir: Path = STATE_DIR, durable: bool = True) -> None:
        self.asked = Path(data_dir).absolute()
        self.state_dir = state_dir
        self.durable = durable
        self.place = self.asked
        """The folder actually used; known from `start` on."""
        self._lock: int | None = None
        self._user_pid = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._socket_dir: Path | None = None

    def start(self) -> str:
        """Makes the database if it is new, starts its server, and returns a postgresql:// URL.

        An orphaned server of this folder, whose user was killed, is stopped first. Raises InUse when another process uses the
        folder, and EmbeddedError, with the end of the server's log, when it cannot be started.
        """
        if self._server is not None and self._socket_dir is not None:
            return url_of(self._socket_dir)
        identity = who_runs_it(self.asked)
        _refuse_foreign(self._choose_place(identity))
        self.place = self._find_place(identity)
        self._take_lock()
        try:
            bin_dir = find_binaries(identity, self.state_dir)
            home = self.place / "postgres"
            own_dir(home, identity)
            orphans.clear(home / "data", STOP_LIMIT)
            if not (home / "data" / "PG_VERSION").exists():
                initialise(bin_dir, home, identity, self.durable)
            self._socket_dir = make_socket_dir(home, identity)
            self._server = launch(bin_dir, home, self._socket_dir, identity, self.durable)
            self._user_pid = os.getpid()
            atexit.register(self.stop)
            self._wait_until_ready(url := url_of(self._socket_dir))
        except OSError as error:  # a full disk's does not say where
            self.stop()
            raise EmbeddedError(self.place, str(error)) from error
        except BaseException:
            self.stop()
            raise
        log.info("PostgreSQL runs on %s, pid %d", self.place, self._server.pid)
        return url

    def exists(self) -> bool:
        """Whether the database was ever made; where that is hidden from us it was. Makes nothing. Raises EmbeddedError."""
        try:
            return (self._choose_place(who_runs_it(self.asked)) / "postgres" / "data" / "PG_VERSION").exists()
        except PermissionError:
            return True

    def find(self) -> str:
        """Return the URL of the server that another process uses, for brief use next to that process. Raises EmbeddedError."""
        self.place = self._find_place(who_runs_it(self.asked))
        try:
            lines = (self.place / "postgres" / "data" / "postmaster.pid").read_text("utf-8").splitlines()
            return url_of(Path(lines[4]))
        except PermissionError:
            problem = "ask as the user who runs the scheduler, or as root"
        except (OSError, IndexError):
            problem = "its server is about to start or to stop: try again"
        raise EmbeddedError(self.place, problem)

    @property
    def running(self) -> bool:
        """Whether the server that `start` made is there. When it is not, nobody but a new `start` brings it back."""
        return self._server is not None and self._server.poll() is None

    def stop(self) -> None:
        """Ends all sessions and the server, and gives the folder back. Does nothing when it is not started."""
        if self._server is not None:
            if self._user_pid != os.getpid():
                return  # a fork of ours ends: the server is not its own
            end(self._server)
            self._server = None
            atexit.unregister(self.stop)
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            self._socket_dir = None
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.stop()

    def _find_place(self, identity: Identity) -> Path:
        """As `_choose_place`, and made if missing."""
        place = self._choose_place(identity)
        if place != self.asked:
            log.warning("User %s, who runs PostgreSQL, cannot reach %s: the data is in %s", identity.name, self.asked, place)
        make_dir(place, 0o755 if identity.other else 0o700)
        return place

    def _choose_place(self, identity: Identity) -> Path:
        """The folder that was asked for, or, when the server's user cannot reach it, its substitute."""
        place = self.asked
        if not reachable(place, identity):
            place = self.state_dir / blake2b(bytes(place.resolve()), digest_size=8).hexdigest()
            if not reachable(place, identity):
                raise EmbeddedError(self.asked, f"user {identity.name} can reach neither it nor {self.state_dir}")
        return place

    def _take_lock(self) -> None:
        path = self.place / "lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            user = os.read(lock, 32).strip()
            os.close(lock)
            raise InUse(self.place, int(user) if user.isdigit() else 0) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        self._lock = lock

    def _wait_until_ready(self, url: str) -> None:
        assert self._server is not None
        limit = time.monotonic() + _START_LIMIT
        while True:
            try:
                psycopg.connect(url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self._server.poll() is not None or time.monotonic() > limit:
                    problem = f"the server did not start: {error}\nThe end of its log:\n{tail(self.place / 'postgres' / 'log')}"
                    raise EmbeddedError(self.place, problem) from error
            time.sleep(0.01)


def _refuse_foreign(place: Path) -> None:
    """Raises EmbeddedError for a folder that holds something, and no database of ours: nothing is written into it."""
    try:
        found = {entry.name for entry in os.scandir(place)}
    except OSError:  # it is not there yet, or will be complained of
        return
    if "postgres" not in found and (foreign := sorted(found - {"lock", "lost+found"})):
        problem = f"the folder is not empty ({', '.join(foreign[:3])}), and holds no database of Ebb: name one of its own"
        raise EmbeddedError(place, f"{problem}, such as {place / 'ebb-db'}")
