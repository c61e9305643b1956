"""The embedded server: started, stopped, orphaned, shared by mistake, and run for root."""

import errno
import logging
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from scheduler_service import store
from scheduler_service.store.embedded import binaries, orphans
from scheduler_service.store.embedded.server import Embedded
from tests.store.fixtures import furnish, short_dir
from tests.store.waiting import wait_for

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")

# Starts the server, commits a row, says where it is, and waits to be killed.
_OWNER = """
import sys, time, psycopg
from pathlib import Path
from scheduler_service.store.embedded.server import Embedded
server = Embedded(Path(sys.argv[1]), state_dir=Path(sys.argv[2]), durable=False)
url = server.start()
with psycopg.connect(url) as conn:
    conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
print(url, flush=True)
if sys.argv[3] == "stay":
    sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_dir() as path:
        yield path


made_before = pytest.mark.usefixtures("furnished")
"""For tests of what comes after the database is made, which takes longer than all of that."""


@pytest.fixture
def furnished(folder: Path) -> None:
    furnish(folder / "data")


def server(folder: Path, name: str = "data") -> Embedded:
    return Embedded(folder / name, state_dir=folder / "state", durable=False)


def socket_dir(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as conn:
        row = conn.execute(query.encode()).fetchone()
    return row and row[0]


def postmaster(place: Path) -> int:
    return int((place / "postgres/data/postmaster.pid").read_text().split()[0])


def owner(folder: Path, then: str = "stay") -> "subprocess.Popen[str]":
    """Another process that uses the server of the folder; it is ready when it has said the URL."""
    command = [sys.executable, "-c", _OWNER, str(folder / "data"), str(folder / "state"), then]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_starts_keeps_what_it_has_and_stops_without_a_trace(folder: Path) -> None:
    one = server(folder)
    url = one.start()
    assert one.start() == url
    assert ask(url, "SHOW server_version_num") >= "150000"  # type: ignore[operator]
    assert ask(url, "SHOW listen_addresses") == ""
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    place = one.place
    assert orphans._working_in(place / "postgres/data")
    one.stop()
    one.stop()
    assert not orphans._working_in(place / "postgres/data")
    assert not socket_dir(url).exists()
    assert not (place / "postgres/data/postmaster.pid").exists()
    with server(folder) as again:
        assert ask(again, "SELECT answer FROM kept") == 42


@made_before
def test_it_is_durable_unless_told_otherwise(folder: Path) -> None:
    with Embedded(folder / "data", state_dir=folder / "state") as url:
        assert [ask(url, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")] == ["on"] * 3
        assert [ask(url, f"SHOW {name}") for name in ("shared_buffers", "max_connections")] == ["64MB", "50"]


@made_before
def test_only_its_user_can_reach_the_socket(folder: Path) -> None:
    with server(folder) as url:
        assert stat.S_IMODE(socket_dir(url).stat().st_mode) == 0o700
        assert stat.S_IMODE(socket_dir(url).parent.stat().st_mode) == 0o700


@made_before
def test_a_second_user_is_refused_and_told_who_the_first_is(folder: Path) -> None:
    with server(folder) as url, pytest.raises(store.InUse, match=f"in use by process {os.getpid()}") as refused:
        server(folder).start()
    assert refused.value.pid == os.getpid()
    with pytest.raises(psycopg.OperationalError):
        ask(url, "SELECT 1")


@made_before
def test_a_second_process_is_refused_too(folder: Path) -> None:
    with owner(folder) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline()
            with pytest.raises(store.InUse, match=f"process {other.pid}"):
                server(folder).start()
        finally:
            other.communicate("")


def test_a_folder_of_somebody_elses_is_refused_and_not_written_into(folder: Path) -> None:
    foreign = folder / "data"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    said = r"is not empty \(thesis\.tex\), and holds no database of Ebb: name one of its own, such as .*/data/ebb-db"
    with pytest.raises(store.EmbeddedError, match=said):
        server(folder).start()
    assert [path.name for path in foreign.iterdir()] == ["thesis.tex"]


@made_before
def test_after_a_kill_of_its_user_the_orphan_is_replaced(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with owner(folder) as killed:
        assert killed.stdout is not None
        old_url = killed.stdout.readline().strip()
        killed.kill()
    assert ask(old_url, "SELECT answer FROM kept") == 42, "the server goes on without its user"
    one = server(folder)
    old = postmaster(folder / "data")
    with caplog.at_level(logging.WARNING), one as url:
        assert ask(url, "SELECT answer FROM kept") == 42
        assert postmaster(one.place) != old
    assert f"pid {old}" in caplog.text
    assert not orphans._working_in(one.place / "postgres/data")


@made_before
def test_a_user_that_exits_takes_its_server_along(folder: Path) -> None:
    with owner(folder, "exit") as done:
        done.communicate(timeout=30)
    assert done.returncode == 0
    assert not orphans._working_in(folder / "data/postgres/data")


@made_before
def test_ctrl_c_in_the_terminal_does_not_reach_it(folder: Path) -> None:
    one = server(folder)
    with one:
        assert os.getsid(postmaster(one.place)) == postmaster(one.place)


@made_before
def test_a_stale_pid_file_is_no_obstacle(folder: Path) -> None:
    one = server(folder)
    with one:
        pid_file = one.place / "postgres/data/postmaster.pid"
        text = pid_file.read_text()
    owner_of = (one.place / "postgres/data").stat()
    for pid in (os.getpid(), 2**22 - 1):  # a process that is no server, and none at all
        pid_file.write_text("\n".join([str(pid), *text.splitlines()[1:]]) + "\n")
        os.chown(pid_file, owner_of.st_uid, owner_of.st_gid)
        pid_file.chmod(0o600)
        with server(folder) as url:
            assert ask(url, "SELECT 1") == 1


@made_before
def test_it_recovers_after_a_kill_of_the_server_itself(folder: Path) -> None:
    one = Embedded(folder / "data", state_dir=folder / "state")
    with one as url:
        with psycopg.connect(url) as conn:
            conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(postmaster(one.place), signal.SIGKILL)
        wait_for(lambda: one._server is not None and one._server.poll() is not None)
    with server(folder) as url:
        assert ask(url, "SELECT answer FROM kept") == 42


@made_before
def test_the_log_of_the_server_before_is_kept(folder: Path) -> None:
    one = server(folder)
    with one:
        pass
    home = one.place / "postgres"
    (home / "log").write_text("PANIC: why it ended\n")
    with server(folder):
        assert (home / "log.1").read_text() == "PANIC: why it ended\n"
        assert "PANIC" not in (home / "log").read_text()


@made_before
def test_a_half_made_database_is_made_again(folder: Path) -> None:
    one = server(folder)
    with one:
        pass
    home = one.place / "postgres"
    (home / "data").rename(home / "data.new-1")
    (home / "data.new-1/PG_VERSION").unlink()
    with server(folder) as url:
        assert ask(url, "SELECT 1") == 1


def test_a_long_path_puts_the_socket_elsewhere(folder: Path) -> None:
    with server(folder, "d" * 90) as url:
        assert len(str(socket_dir(url))) < 60
        assert ask(url, "SELECT 1") == 1
    assert not socket_dir(url).exists()


def test_a_path_that_postgresql_would_take_for_a_list(folder: Path) -> None:
    with server(folder, 'one,two "three"') as url:
        assert ask(url, "SELECT 1") == 1


def test_an_initdb_whose_user_was_killed_is_in_nobodys_way(folder: Path) -> None:
    """It goes on writing for a moment, in the folder that the next start would make empty."""
    stale = server(folder).asked / "postgres" / "data.new-1"
    stale.mkdir(parents=True)
    writes = f"while :; do mkdir -p {stale}/base && echo > {stale}/base/$RANDOM; done"
    with subprocess.Popen(["bash", "-c", writes], stderr=subprocess.DEVNULL, start_new_session=True) as orphan:
        try:
            with server(folder) as url:
                assert ask(url, "SELECT 1") == 1
        finally:
            os.killpg(orphan.pid, signal.SIGKILL)  # with its mkdir, which would go on in a folder that is being removed


@made_before
def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    one = server(folder)
    with one:
        pass
    (one.place / "postgres/data/PG_VERSION").write_text("9.6\n")
    with pytest.raises(store.EmbeddedError, match=r"(?s)did not start.*end of its log.*version"):
        server(folder).start()
    (one.place / "postgres/data/PG_VERSION").write_text("18\n")
    with server(folder):
        pass


@made_before
def test_a_full_disk_is_told_with_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel says of it names no file."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(orphans, "clear", full)
    server = Embedded(folder / "pg", state_dir=folder / "state", durable=False)
    with pytest.raises(store.EmbeddedError, match=r"in .*pg cannot be used: .*No space left on device"):
        server.start()
    monkeypatch.undo()
    server.start()
    server.stop()


@made_before
def test_a_forked_child_that_stops_it_leaves_it_to_its_parent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = server(folder)
    with one as url:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            one.stop()
        assert ask(url, "SELECT 1") == 1


@as_root
def test_as_root_it_runs_as_an_unprivileged_user(folder: Path) -> None:
    one = server(folder)
    with one:
        assert Path(f"/proc/{postmaster(one.place)}").stat().st_uid == binaries.who_runs_it(folder).uid != 0
        assert one.place == folder / "data"


@as_root
def test_as_root_a_folder_that_others_cannot_reach_is_replaced(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    one = server(folder, "private/data")
    with one as url:
        assert ask(url, "SELECT 1") == 1
        assert one.place.parent == folder / "state"
        assert str(one.place) in caplog.text
        with pytest.raises(store.InUse):
            server(folder, "private/data").start()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert list(private.iterdir()) == []


@as_root
def test_as_root_a_narrow_umask_does_not_matter(folder: Path) -> None:
    old = os.umask(0o077)
    try:
        with server(folder, "new/deep/data") as url:
            assert ask(url, "SELECT 1") == 1
    finally:
        os.umask(old)


@as_root
def test_as_root_binaries_that_others_cannot_reach_are_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = binaries.who_runs_it(folder)
    original = binaries.find_binaries(identity, folder)
    real = binaries.reachable
    monkeypatch.setattr(binaries, "reachable", lambda path, who: not path.is_relative_to(original) and real(path, who))
    with server(folder) as url:
        assert ask(url, "SELECT 1") == 1
    copies = list((folder / "state").iterdir())
    assert [copy.name.startswith("postgresql-") for copy in copies] == [True]
    assert binaries.find_binaries(identity, folder / "state").is_relative_to(copies[0])


def test_without_the_wheel_the_systems_server_serves_if_it_is_new_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("initdb", "postgres"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) 16.3'\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(binaries, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    identity = binaries.who_runs_it(folder)
    assert binaries.find_binaries(identity, folder / "state") == folder
    monkeypatch.setattr(binaries, "_OLDEST", 99)
    with pytest.raises(store.EmbeddedError, match="no PostgreSQL >= 99"):
        binaries.find_binaries(identity, folder / "state")


def test_reachable_looks_at_every_parent(folder: Path) -> None:
    nobody = binaries.Identity("another", os.geteuid() + 1, os.getegid() + 1, other=True)
    (folder / "a").mkdir()
    (folder / "a").chmod(0o755)
    assert binaries.reachable(folder / "a/b/c", nobody)
    (folder / "a").chmod(0o750)
    assert not binaries.reachable(folder / "a/b/c", nobody)
    assert binaries.reachable(folder / "a/b/c", nobody._replace(other=False))
