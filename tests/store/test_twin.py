"""What keeps the twin one: the same functions, and every rule of the tables."""

import inspect

import pytest
from sqlalchemy import CheckConstraint, Column, Integer, MetaData, Table, text

from scheduler_service import store
from scheduler_service.core.state.journal import Change
from scheduler_service.store.schema import tables
from tests.store import make
from tests.store.contract import LEASE, READ, WRITE
from tests.twin import memory
from tests.twin.memory import Memory
from tests.twin.rules import Rules, evaluator


@pytest.mark.parametrize("name", [*WRITE, *READ, *LEASE, "outcome"])
def test_its_functions_take_what_those_of_the_store_take(name: str) -> None:
    real, twin = (list(inspect.signature(getattr(module, name)).parameters.values())[1:] for module in (store, memory))
    assert [(p.name, p.default, p.annotation) for p in twin] == [(p.name, p.default, p.annotation) for p in real]


def test_it_judges_by_every_rule_that_the_tables_have() -> None:
    """One that SQLite could not evaluate is an error when a Memory is made."""
    twin = Memory()
    for name, table in twin.tables.items():
        wanted = {str(c.name) for c in tables.metadata.tables[name].constraints if isinstance(c, CheckConstraint)}
        assert set(table.rules._checks) == wanted


def test_a_rule_in_words_that_it_does_not_know_is_said() -> None:
    table = Table("t", MetaData(), Column("a", Integer()), CheckConstraint(text("a = ANY(b)"), name="odd"))
    with pytest.raises(NotImplementedError, match="table t cannot be evaluated"):
        Rules(table, evaluator())


def test_a_refused_commit_leaves_it_as_it_was() -> None:
    twin = Memory()
    epoch = memory.take(twin, "tester", 60)
    assert epoch is not None
    memory.commit(twin, epoch, make.new(make.CLUSTER, make.NODE, make.DEVICE, make.job(1), make.run(1)), [])
    before = [(table.records.copy(), {k: dict(v) for k, v in table.unique.items()}) for table in twin.tables.values()]
    changes: list[Change] = [
        make.changed(make.job(1), state=2),
        make.deleted(make.DEVICE),
        *make.new(make.job(2, request_id="r"), make.job(3, request_id="r")),
    ]
    with pytest.raises(store.DuplicateRequest):
        memory.commit(twin, epoch, changes, [make.submitted(1)])
    assert [(table.records, table.unique) for table in twin.tables.values()] == before
    assert twin.commit_no == 1
