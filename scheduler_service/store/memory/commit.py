"""The commit in memory: carries out on records what PostgreSQL would be sent, and judges it by the same constraints."""

import json
import re
from collections.abc import Sequence
from typing import Literal

from scheduler_service.core.model import JobEvent
from scheduler_service.core.state.journal import Change
from scheduler_service.store.errors import Fenced, Forgotten, Rejected, StoreError
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.memory.database import Memory
from scheduler_service.store.memory.records import Key, RecordTable
from scheduler_service.store.memory.rules import unstorable
from scheduler_service.store.writing.commit import Work, encode, plan


def _refuse(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


_READER = json.JSONDecoder(parse_constant=_refuse)
_SUSPECT = re.compile(r"\\u(0000|d[89a-f])")


def commit(memory: Memory, epoch: int, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
    with memory.lock:
        if epoch != memory.epoch:
            raise Fenced(epoch)
        before: list[tuple[RecordTable, Key, Record | None]] = []
        try:
            missing = [refusal for work in plan(changes, events) if (refusal := _carry_out(memory, work, before))]
            if missing:
                raise missing[0]
            for table in {id(table): table for table, _, _ in before}.values():
                table.check_deferred()
        except StoreError:
            # Step by step back: each was allowed once, so none is refused.
            for table, key, record in reversed(before):
                table.replace(key, record)
            raise
        memory.commit_no += 1
        return memory.commit_no


def _carry_out(memory: Memory, work: Work, before: list[tuple[RecordTable, Key, Record | None]]) -> Rejected | None:
    """One statement. Notes in `before` what was there; returns the refusal if records that it needs are not there."""
    table = memory.tables[work.table]
    missing, touched = 0, []
    for given in _storable(work.records):
        key = table.key_of({"commit_no": memory.commit_no + 1} | given)
        old = table.records.get(key)
        if work.kind != "insert" and old is None:
            missing += 1
            continue
        if work.kind == "insert":
            blank: Record = dict.fromkeys(table.names)
            new: Record | None = blank | table.rules.defaults | {"commit_no": memory.commit_no + 1} | given
            new = {name: value for name, value in (new or {}).items() if name in blank}
            if old is not None:
                raise Rejected(str(table.table.primary_key.name), f"Key {key} already exists.")
        else:
            new = old | given if work.kind == "update" and old is not None else None
        table.replace(key, new)
        before.append((table, key, old))
        touched.append((old or {}, new))
    for gone, there in touched:
        _check_references(memory, table, gone, there)
    if missing:
        return Rejected(f"{work.table}_present", f"{missing} of {len(work.records)} rows do not exist")
    return None


def _storable(records: list[Record]) -> list[Record]:
    """The records as PostgreSQL would read them: other objects. Raises Rejected when it could not."""
    try:
        text = encode(records)
        read: list[Record] = _READER.decode(text)
    except ValueError as error:
        raise Rejected("", str(error)) from error
    if _SUSPECT.search(text) and (why := unstorable(read)):
        raise Rejected("", why)
    return read


def _check_references(memory: Memory, table: RecordTable, old: Record, new: Record | None) -> None:
    """Foreign keys: what the record refers to is there, and what is gone is not referred to."""
    if not memory.checks_references:
        return
    if new is not None:
        for reference in table.references:
            values = tuple(new[name] for name in reference.columns)
            if None not in values and values not in memory.tables[reference.table].unique[reference.unique]:
                raise Rejected(reference.name, f"Key ({', '.join(reference.columns)})={values} is not present.")
        return
    for other in memory.tables.values():
        for reference in other.references:
            if reference.table == table.table.name:
                gone = tuple(old[name] for name in reference.target)
                if gone in other.counts[reference.name]:
                    raise Rejected(reference.name, f"Key {gone} is still referenced from {other.table.name}.")


def outcome(memory: Memory, epoch: int, commit_no_before: int) -> Literal["committed", "not committed"]:
    with memory.lock:
        if epoch != memory.epoch:
            raise Fenced(epoch)
        if memory.commit_no < commit_no_before:
            raise Forgotten(memory.commit_no, commit_no_before)
        return "committed" if memory.commit_no > commit_no_before else "not committed"
