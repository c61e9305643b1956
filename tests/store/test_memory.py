"""What keeps the twin one: the same functions, and every rule of the tables."""

import inspect

import pytest
from sqlalchemy import CheckConstraint, Column, Integer, MetaData, Table, text

from scheduler_service import store
from scheduler_service.core.state.journal import Change
from scheduler_service.sim.experiments.cases import Case, simulate
from scheduler_service.store import memory
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.memory import Memory
from scheduler_service.store.memory.rules import Judged, Rules, evaluator
from scheduler_service.store.schema import tables
from tests.store import make
from tests.store.contract import LEASE, READ, WRITE


@pytest.mark.parametrize("name", [*WRITE, *READ, *LEASE, "outcome"])
def test_its_functions_take_what_those_of_the_store_take(name: str) -> None:
    real, twin = (list(inspect.signature(getattr(module, name)).parameters.values())[1:] for module in (store, memory))
    assert [(p.name, p.default, p.annotation) for p in twin] == [(p.name, p.default, p.annotation) for p in real]


def test_it_judges_by_every_rule_that_the_tables_have() -> None:
    """One that SQLite could not evaluate is an error when a Memory is made."""
    twin = Memory()
    for name, table in twin.tables.items():
        wanted = {str(c.name) for c in tables.metadata.tables[name].constraints if isinstance(c, CheckConstraint)}
        assert {rule.name for rule in table.rules.rules if rule.kind == "check"} == wanted


def test_a_change_is_judged_as_the_whole_record_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, changes = Rules.judge, 0

    def both(self: Rules, record: Record, old: Record | None = None) -> Judged:
        nonlocal changes
        part, whole = judge(self, record, old), judge(self, record)
        before = whole if old is None else judge(self, old)
        assert part.broken == whole.broken
        assert before.computed | part.computed == whole.computed
        assert before.indexed | part.indexed == whole.indexed
        changes += old is not None
        return part

    monkeypatch.setattr(Rules, "judge", both)
    kind = {"work_s": 100, "gpus": 1, "cpus": 1, "memory_gib": 1, "grace_s": 20}
    workload = {
        "kind": "generated",
        "jobs": 40,
        "kinds": [kind, kind | {"trial": True}],
        "arrivals": {"kind": "poisson", "load": 2},
    }
    simulate(Case.model_validate({"cluster": [{"nodes": 2, "cpus": 8, "memory_gib": 64, "gpus": 2}], "workload": workload}))
    assert changes > 200


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
