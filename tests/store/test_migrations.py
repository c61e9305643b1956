"""The migrations make exactly the tables of `tables.metadata`, and go down and up again."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, ProgrammingError

from scheduler_service import store
from scheduler_service.core.model import Configuration, EventKind, Reason, RunKey, RunPhase, StopReason
from scheduler_service.core.model.profiles import Profile
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import Vector
from scheduler_service.store.migrate import configuration, latest
from scheduler_service.store.schema import tables
from tests.store import make
from tests.store.fixtures import new_database

module = import_module("scheduler_service.store.migrate")  # by its name there is the function

# What compare_metadata does not look at: check constraints, deferrability, conditions of indices, comments, generated columns.
_CATALOG = {
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE connamespace = 'public'::regnamespace",
    "indices": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "columns": "SELECT table_name, column_name, data_type, is_nullable, column_default, generation_expression, "
    "col_description(format('%I', table_name)::regclass, ordinal_position) "
    "FROM information_schema.columns WHERE table_schema = 'public'",
    "tables": "SELECT relname, obj_description(oid) FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'",
}


def catalog(engine: Engine) -> dict[str, set[tuple[Any, ...]]]:
    """What the database says of its tables, without Alembic's own."""
    with engine.begin() as conn:
        found = {name: {tuple(row) for row in conn.execute(text(query))} for name, query in _CATALOG.items()}
    return {name: {row for row in rows if "alembic_version" not in row[0]} for name, rows in found.items()}


@pytest.fixture
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """One of the test's own, which may change it."""
    with new_database(postgres_url, migrated_template) as url:
        yield url


@pytest.fixture
def empty(postgres_url: str) -> Iterator[Engine]:
    with new_database(postgres_url) as url:
        engine = store.open_engine(url)
        yield engine
        engine.dispose()


def test_the_migrations_make_the_tables_that_the_code_describes(engine: Engine, empty: Engine) -> None:
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, tables.metadata) == [], (
            "migrations/ lacks a revision for a change of store/schema/tables.py"
        )
    tables.metadata.create_all(empty)
    migrated, described = catalog(engine), catalog(empty)
    for part in _CATALOG:
        assert migrated[part] == described[part], (
            f"{part}: add a revision to migrations/ for the change of store/schema/tables.py"
        )


def test_down_and_up_again(empty: Engine) -> None:
    store.migrate(empty)
    before = catalog(empty)
    with empty.begin() as conn:
        command.downgrade(configuration(conn), "base")
    assert not any(catalog(empty).values())
    store.migrate(empty)
    assert catalog(empty) == before


def test_offers_and_requests_become_postings_and_go_back(empty: Engine) -> None:
    store.migrate(empty, "0006")
    with empty.begin() as conn:
        conn.execute(
            text(
                "INSERT INTO exchange_order VALUES (3, 1, 1, 'p', 'node', 2, 0, 9, 8, 0, 9, NULL, NULL, 1, false, NULL, 'r');"
                "INSERT INTO cluster (id, seed, next_job, next_node, next_earmark, next_vc, clock_us, next_order,"
                " next_exchange) VALUES ('c', 0, 1, 1, 1, 1, 0, 4, 6);"
                "INSERT INTO exchange VALUES (5, 3, NULL, 1, 2, 'p', 'node', 1, 0, 9, 8, 7, 0, NULL, 1, 0, NULL, NULL, '', 1);"
            )
        )
        before = conn.execute(text("SELECT * FROM exchange_order")).all()
    store.migrate(empty)
    with empty.begin() as conn:
        assert conn.execute(text("SELECT * FROM exchange_posting")).all() == before
        assert conn.execute(text("SELECT next_posting FROM cluster")).scalar_one() == 4
        command.downgrade(configuration(conn), "0006")
        assert conn.execute(text("SELECT * FROM exchange_order")).all() == before
        assert conn.execute(text("SELECT next_order FROM cluster")).scalar_one() == 4


def test_a_gang_keeps_its_nodes_when_they_are_renamed(engine: Engine, writer: Any, epoch: int) -> None:
    gang = make.job(1, task_nodes=(1, 2), rendezvous="node-1:29400")
    store.commit(writer, epoch, make.new(make.CLUSTER, gang), [])
    kept = text("SELECT more FROM job")
    with engine.begin() as conn:
        before = conn.execute(kept).scalar_one()
        command.downgrade(configuration(conn), "0007")
        assert conn.execute(kept).scalar_one() == {"seats": [1, 2], "rendezvous": "node-1:29400"}
        command.upgrade(configuration(conn), "heads")
        assert conn.execute(kept).scalar_one() == before == {"task_nodes": [1, 2], "rendezvous": "node-1:29400"}


def test_a_run_that_is_being_stopped_is_in_its_second_generation(engine: Engine, writer: Any, epoch: int) -> None:
    stopping = make.run(2, phase=RunPhase.STOPPING, stop_us=make.T, generation=3)
    rows = (make.CLUSTER, make.NODE, make.job(1), make.job(2), make.run(1), stopping)
    store.commit(writer, epoch, make.new(*rows), [])
    kept = text("SELECT generation FROM run ORDER BY job_id")
    with engine.begin() as conn:
        assert conn.execute(kept).scalars().all() == [None, 3]
        command.downgrade(configuration(conn), "0008")
        command.upgrade(configuration(conn), "heads")
        assert conn.execute(kept).scalars().all() == [None, 2]


def test_what_was_sampled_is_what_was_requeued_to_an_older_version(engine: Engine, writer: Any, epoch: int) -> None:
    job, run = make.job(1, reason=Reason.SAMPLED), make.run(1, phase=RunPhase.STOPPING, stop_reason=StopReason.SAMPLED)
    told = replace(make.submitted(1), kind=EventKind.SAMPLED, reason=Reason.SAMPLED)
    store.commit(writer, epoch, make.new(make.CLUSTER, make.NODE, job, run, make.history("a")), [told])
    with engine.begin() as conn:
        command.downgrade(configuration(conn), "0011")
        assert conn.execute(text("SELECT reason FROM job")).scalar_one() == Reason.REQUEUED
        assert conn.execute(text("SELECT stop_reason FROM run")).scalar_one() == StopReason.REQUEUED
        assert conn.execute(text("SELECT kind, reason FROM job_event")).one() == (EventKind.UPDATED, Reason.REQUEUED)
    store.migrate(engine)
    assert store.load(writer).history == ()


def test_jobs_nodes_and_earmarks_of_before_configurations_are_read_as_they_were(
    engine: Engine, writer: Any, epoch: int
) -> None:
    job, queued = (
        make.job(1, configuration=1, spec=replace(make.SPEC, alternatives=(Configuration(Vector(1, 1)),))),
        make.job(2),
    )
    earmark = make.earmark(1, 1, configuration=1)
    node = replace(make.NODE, labels=(("disk", "nvme"), ("zone", "a")))
    number = store.commit(writer, epoch, make.new(make.CLUSTER, node, job, queued, earmark), [])
    assert store.load(writer) == make.loaded(number, [make.CLUSTER, node, job, queued, earmark])
    with engine.begin() as conn:
        command.downgrade(configuration(conn), "0010")
        for query in ("SELECT labels FROM node", "SELECT configuration FROM earmark"):
            with pytest.raises(ProgrammingError, match="does not exist"), conn.begin_nested():
                conn.execute(text(query))
    store.migrate(engine)
    with engine.connect() as conn:
        rows = [make.CLUSTER, make.NODE, job, queued, replace(earmark, configuration=0)]
        assert store.load(conn) == make.loaded(number, rows), "what those columns held is gone, and nothing else"
        for wrong in ("UPDATE node SET labels = '[]'", "UPDATE earmark SET configuration = 0"):
            with pytest.raises(IntegrityError), conn.begin_nested():
                conn.execute(text(wrong))


def test_rows_without_turns_have_turns_in_an_older_version(engine: Engine, writer: Any, epoch: int) -> None:
    rows = tuple(Row((RunKey(number, 1),), weight) for number, weight in ((1, 3), (2, 0), (3, 1)))
    store.commit(writer, epoch, make.new(make.CLUSTER, make.share_group(1, rows=rows)), [])
    with engine.begin() as conn:
        command.downgrade(configuration(conn), "0021")
    store.migrate(engine)
    (group,) = store.load(writer).share_groups
    assert group.rows == tuple(row._replace(weight=row.weight or 1) for row in rows)


def test_migrating_again_changes_nothing_and_keeps_the_leader(engine: Engine, conn: Any, epoch: int) -> None:
    store.migrate(engine)
    assert store.holder(conn).epoch == epoch


def test_a_database_that_is_up_to_date_does_not_cost_an_upgrade(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine.connect() as conn:
        scripts = ScriptDirectory.from_config(configuration(conn))
    assert {script.revision for script in scripts.walk_revisions()} == module._numbers()
    assert [latest()] == scripts.get_heads()
    assert latest() == store.revision(engine)
    upgrades: list[str] = []
    monkeypatch.setattr(module, "_upgrade", lambda _conn, to: upgrades.append(to))
    store.migrate(engine)
    assert upgrades == []
    with engine.begin() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    store.migrate(engine)
    assert upgrades == ["heads"]


def test_a_database_of_a_later_version_is_refused(engine: Engine) -> None:
    with engine.begin() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(store.SchemaTooNew, match="revision 9999"):
        store.migrate(engine)


def test_every_value_of_an_enum_is_explained_in_the_database(engine: Engine) -> None:
    comments = {row[:2]: row[-1] for row in catalog(engine)["columns"]}
    assert "4 STOPPING" in comments[("job", "state")]
    assert "11 ENDED" in comments[("job_event", "kind")]


def test_leader_has_exactly_one_row(engine: Engine) -> None:
    with engine.begin() as conn:
        assert conn.execute(text("SELECT count(*) FROM leader")).scalar_one() == 1


def test_a_probe_is_an_update_to_an_older_version_and_a_profile_is_kept(engine: Engine, writer: Any, epoch: int) -> None:
    profile = Profile(100_000, 4000, 200_000, 1, "A100")
    told = replace(make.submitted(1), kind=EventKind.PROBED)
    number = store.commit(writer, epoch, make.new(make.CLUSTER, job := make.job(1, profile=profile)), [told])
    assert store.load(writer) == make.loaded(number, [make.CLUSTER, job])
    with engine.begin() as conn:
        command.downgrade(configuration(conn), "0016")
        assert conn.execute(text("SELECT kind FROM job_event")).scalar_one() == EventKind.UPDATED
        command.upgrade(configuration(conn), "heads")
