"""`ebb-scheduler token`, on a database of the site's own and on an embedded one."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection, Engine, text

from scheduler_service import store
from scheduler_service.commands.main import main
from scheduler_service.core.model.tokens import Role
from scheduler_service.run.token_cache import digest_of, wall_clock
from scheduler_service.store.embedded.server import Embedded
from tests.store.fixtures import new_database, short_dir


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["token", *arguments])


def good(*arguments: str) -> str:
    done = command(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def on(database_url: str) -> tuple[str, str]:
    return "--database", database_url


def test_create_prints_the_secret_and_keeps_its_hash(on: tuple[str, str], conn: Connection) -> None:
    done = command("create", *on, "--user", "ada", "--role", "operator", "--expires", "2.5")
    secret = done.stdout.removesuffix("\n")
    assert secret.startswith("ebb_")
    assert len(secret) == len("ebb_") + 43, "256 bits"
    assert "token 1 for ada, as operator; it expires on 20" in done.stderr
    found = store.find_tokens(conn, [digest_of(secret)])[digest_of(secret)]
    assert (found.subject, found.role, found.last_chars) == ("ada", Role.OPERATOR, secret[-6:])
    assert found.expires_us == found.created_us + 216_000_000_000
    assert abs(found.created_us - wall_clock()) < 600_000_000
    rows = conn.execute(text("SELECT api_token::text FROM api_token")).scalars().all()
    assert not any(secret[4:-6] in row for row in rows)
    assert good("create", *on, "--user", "ada") != done.stdout


def test_list_and_revoke(on: tuple[str, str], engine: Engine) -> None:
    secrets = [good("create", *on, "--user", name).strip() for name in ("ada", "bob")]
    with engine.connect() as conn:
        store.add_token(conn, digest_of("old"), "old", "eve", Role.AGENT, 1, 2)
    assert good("revoke", "1", *on) == "token 1 of ada is revoked\n"
    assert good("revoke", "1", *on) == "token 1 of ada is revoked\n", "safe to repeat"
    rows = json.loads(good("list", *on, "-o", "json"))
    assert [(r["id"], r["user"], r["role"], r["state"]) for r in rows] == [
        (1, "ada", "user", "revoked"),
        (2, "bob", "user", "valid"),
        (3, "eve", "agent", "expired"),
    ]
    assert rows[2] == rows[2] | {"created": "1970-01-01T00:00:00Z", "expires": "1970-01-01T00:00:00Z", "ends_with": "old"}
    shown = good("list", *on)
    assert [line.split()[:5] for line in shown.splitlines()[1:]] == [
        ["1", "ada", "user", "revoked", secrets[0][-6:]],
        ["2", "bob", "user", "valid", secrets[1][-6:]],
        ["3", "eve", "agent", "expired", "old"],
    ]
    assert not any(secret in shown for secret in secrets)
    unknown = command("revoke", "9", *on)
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("ebb-scheduler: there is no token 9; ")


@pytest.mark.parametrize("name", ["", "a b", "-ada", "ada\n", "a" * 65, "ada/bob"])
def test_a_name_that_is_none(on: tuple[str, str], name: str) -> None:
    done = command("create", *on, "--user", name)
    assert done.exit_code == 2
    assert "is no name" in done.stderr


@pytest.mark.parametrize("name", ["a", "ada.lovelace@example.org", "a" * 64, "n_1-x"])
def test_names(on: tuple[str, str], name: str) -> None:
    assert good("create", *on, "--user", name)


def test_a_new_database_is_made_ready_and_an_old_one_left_to_its_scheduler(postgres_url: str) -> None:
    with new_database(postgres_url) as url:
        assert good("create", "--database", url, "--user", "ada")
    with new_database(postgres_url) as url:
        engine = store.open_engine(url)
        store.migrate(engine, "0001")
        done = command("create", "--database", url, "--user", "ada")
        assert done.exit_code == 1
        assert "the database is at revision 0001, which knows no tokens" in done.stderr
        assert store.revision(engine) == "0001"
        engine.dispose()


@pytest.mark.parametrize("asked", [["list"], ["revoke", "1"]])
def test_who_asks_for_tokens_makes_no_database(asked: list[str], postgres_url: str, tmp_path: Path) -> None:
    for folder in (tmp_path / "nothing", tmp_path):
        done = command(*asked, "--embedded", str(folder))
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"ebb-scheduler: there is no database in {folder}: name the folder")
    assert list(tmp_path.iterdir()) == []
    with new_database(postgres_url) as url:
        done = command(*asked, "--database", url)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr == "ebb-scheduler: no scheduler has used this database yet: it has no tokens\n"
        engine = store.open_engine(url)
        assert not store.revision(engine)
        engine.dispose()


def test_settings_come_as_for_serve(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(f'database: "{database_url}"\nauth: token\n')
    assert good("create", "--config", str(file), "--user", "ada")
    monkeypatch.setenv("EBB_SCHEDULER_DATABASE", database_url)
    assert "ada" in good("list")
    monkeypatch.delenv("EBB_SCHEDULER_DATABASE")
    none = command("list")
    assert (none.exit_code, none.stdout) == (2, "")
    assert "name one database" in none.stderr


def test_a_database_that_does_not_answer() -> None:
    done = command("list", "--database", "postgresql://ebb@127.0.0.1:1/ebb")
    assert done.exit_code == 1
    assert done.stderr.startswith("ebb-scheduler: PostgreSQL cannot be used now: ")
    assert "Nothing was changed. Try again once it answers" in done.stderr
    assert "Traceback" not in done.stderr
    assert "sqlalche.me" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_embedded_database_alone_and_beside_the_process_that_uses_it() -> None:
    with short_dir() as folder:
        on = ("--embedded", str(folder / "db"))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        run = [sys.executable, "-m", "scheduler_service", "token"]
        first = subprocess.run([*run, "create", *on, "--user", "ada"], capture_output=True, text=True, env=environment)
        assert first.returncode == 0, first.stderr
        assert first.stdout.startswith("ebb_")
        assert "Traceback" not in first.stderr
        database = Embedded(folder / "db", durable=False)
        with database as url:  # as a scheduler does
            assert good("create", *on, "--user", "bob")
            engine = store.open_engine(url)
            with engine.connect() as conn:
                assert [token.subject for token in store.list_tokens(conn)] == ["ada", "bob"]
            engine.dispose()
            assert database.running
        assert [row.split()[1] for row in good("list", *on).splitlines()] == ["USER", "ada", "bob"]


@pytest.mark.parametrize("asked", [["create", "--user", "ada"], ["list"], ["revoke", "1"]])
def test_an_embedded_database_whose_server_is_about_to_start(asked: list[str]) -> None:
    with short_dir() as folder, (folder / "lock").open("w") as lock:
        (folder / "postgres" / "data").mkdir(parents=True)
        (folder / "postgres" / "data" / "PG_VERSION").write_text("18\n")  # it was made before
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = command(*asked, "--embedded", str(folder))
    assert done.exit_code == 1
    assert "its server is about to start or to stop: try again" in done.stderr


def test_an_embedded_database_that_a_scheduler_is_making() -> None:
    """It is there for nobody yet but for who would make it, too."""
    with short_dir() as folder, (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made, listed = (command(*asked, "--embedded", str(folder)) for asked in (("create", "--user", "ada"), ("list",)))
    assert "its server is about to start or to stop: try again" in made.stderr
    assert f"there is no database in {folder}" in listed.stderr
