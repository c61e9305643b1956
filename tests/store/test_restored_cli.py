"""`ebb-scheduler restored`."""

from typing import Any

from click.testing import CliRunner, Result
from sqlalchemy import Connection, text

from scheduler_service import store
from scheduler_service.commands.main import main
from scheduler_service.core.state.journal import Change
from tests.store import make
from tests.store.fixtures import new_database


def restored(url: str) -> Result:
    return CliRunner().invoke(main, ["restored", "--database", url])


def numbers(conn: Connection) -> Any:
    found = conn.execute(text("SELECT epoch, next_job, next_posting, next_exchange, next_node FROM leader, cluster")).one()
    conn.rollback()
    return tuple(found)


def test_epoch_and_numbers_are_above_what_was_lost(database_url: str, conn: Connection) -> None:
    epoch = store.take(conn, "a", 60)
    assert epoch is not None
    store.commit(conn, epoch, [Change("cluster", 0, None, make.CLUSTER)], [])
    before = numbers(conn)
    refused = restored(database_url)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "leads, or did a moment ago: stop every scheduler" in refused.stderr
    assert numbers(conn) == before
    store.release(conn, epoch)
    done = restored(database_url)
    assert done.exit_code == 0, done.output
    assert numbers(conn) == (*(number + store.SKIPPED for number in before[:4]), before[4])
    assert store.take(conn, "b", 60) == epoch + store.SKIPPED + 1


def test_a_database_that_is_no_backup(postgres_url: str) -> None:
    with new_database(postgres_url) as url:
        refused = restored(url)
    assert (refused.exit_code, refused.stderr) == (
        1,
        "ebb-scheduler: no scheduler has used this database yet: it is no backup of one\n",
    )
