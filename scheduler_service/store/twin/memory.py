"""The twin: the store in memory, for services in tests and for simulations that need no PostgreSQL.

Every function has the name, the arguments and the errors of the one in the package that asks PostgreSQL, with a Memory for
the connection; `tests/store/contract.py` holds both to one contract. Rows travel as the same records (`rows`), go through
JSON, and are judged by the constraints of the same `tables`: a new column or rule is in the twin by itself. What may
happen to a connection (Unavailable, CommitUnknown) does not happen here. It has no tokens.
"""

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from scheduler_service.core.model import Job, JobEvent, JobState, Node, Run, RunKey
from scheduler_service.core.state.journal import Change
from scheduler_service.store.errors import Fenced, Forgotten, Rejected, StoreError
from scheduler_service.store.lease import Lease, check_asked, is_free
from scheduler_service.store.mapping import rows
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.mapping.story import to_event
from scheduler_service.store.reading.load import JobAndRun, Loaded
from scheduler_service.store.twin.database import Memory as Memory
from scheduler_service.store.twin.exchange import find_accepted as find_accepted
from scheduler_service.store.twin.exchange import find_exchanges as find_exchanges
from scheduler_service.store.twin.exchange import find_posted as find_posted
from scheduler_service.store.twin.exchange import find_posting as find_posting
from scheduler_service.store.twin.exchange import list_exchanges as list_exchanges
from scheduler_service.store.twin.exchange import list_ledger as list_ledger
from scheduler_service.store.twin.exchange import list_postings as list_postings
from scheduler_service.store.twin.exchange import list_surpluses as list_surpluses
from scheduler_service.store.twin.exchange import list_vcs as list_vcs
from scheduler_service.store.twin.exchange import live_market
from scheduler_service.store.twin.exchange import live_of_offers as live_of_offers
from scheduler_service.store.twin.records import Key, RecordTable
from scheduler_service.store.twin.rules import unstorable
from scheduler_service.store.writing.commit import Work, encode, plan

_SUSPECT = re.compile(r"\\u(0000|d[89a-f])")


# ---- commit ------------------------------------------------------------------------------------------------------------


def commit(memory: Memory, epoch: int, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
    """See `store.commit`."""
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
        key = table.found({"commit_no": memory.commit_no + 1} | given)
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

    def refuse(name: str) -> None:
        raise ValueError(f"JSON has no {name}")

    try:
        text = encode(records)
        read: list[Record] = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise Rejected("", str(error)) from error
    if _SUSPECT.search(text) and (why := unstorable(read)):
        raise Rejected("", why)
    return read


def _check_references(memory: Memory, table: RecordTable, old: Record, new: Record | None) -> None:
    """Foreign keys: what the record refers to is there, and what is gone is not referred to."""
    if new is not None:
        for constraint in table.table.foreign_key_constraints:
            values = tuple(new[name] for name in constraint.column_keys)
            target = tuple(element.column.name for element in constraint.elements)
            if None not in values and not _is_there(memory.tables[constraint.referred_table.name], target, values):
                raise Rejected(str(constraint.name), f"Key ({', '.join(constraint.column_keys)})={values} is not present.")
        return
    for other in memory.tables.values():
        for constraint in other.table.foreign_key_constraints:
            if constraint.referred_table is table.table:
                gone = tuple(old[element.column.name] for element in constraint.elements)
                if any(tuple(record[name] for name in constraint.column_keys) == gone for record in other.records.values()):
                    raise Rejected(str(constraint.name), f"Key {gone} is still referenced from {other.table.name}.")


def _is_there(table: RecordTable, columns: tuple[str, ...], values: Key) -> bool:
    index = next(name for name, its in table.columns.items() if its == columns)
    return values in table.unique[index]


def outcome(memory: Memory, epoch: int, commit_no_before: int) -> Literal["committed", "not committed"]:
    """See `store.outcome`."""
    with memory.lock:
        if epoch != memory.epoch:
            raise Fenced(epoch)
        if memory.commit_no < commit_no_before:
            raise Forgotten(memory.commit_no, commit_no_before)
        return "committed" if memory.commit_no > commit_no_before else "not committed"


# ---- reads -------------------------------------------------------------------------------------------------------------


def load(memory: Memory, jobs: bool = True) -> Loaded:
    """See `store.load`."""
    with memory.lock:
        of = memory.tables

        def is_live(record: Record) -> bool:
            return record["ended_us"] is None

        def is_last(run: Record) -> bool:
            job = of["job"].records[(run["job_id"],)]
            return not is_live(run) and is_live(job) and bool(job["run"] == run["run"])

        return Loaded(
            cluster=next(iter(of["cluster"].rows(rows.to_cluster)), None),
            jobs=tuple(of["job"].rows(rows.to_job, is_live)) if jobs else (),
            runs=_runs(memory, is_live),
            nodes=tuple(of["node"].rows(rows.to_node)),
            devices=tuple(of["device"].rows(rows.to_device)),
            earmarks=tuple(of["earmark"].rows(rows.to_earmark)),
            vcs=tuple(of["virtual_cluster"].rows(rows.to_vc)),
            bindings=tuple(of["cell_binding"].rows(rows.to_binding)),
            market=live_market(memory),
            last_runs=_runs(memory, is_last) if jobs else (),
            commit_no=memory.commit_no,
        )


def _run(memory: Memory, record: Record) -> Run:
    vc = memory.tables["job"].records[(record["job_id"],)]["vc"]
    return memory.tables["run"].row(record, lambda values: rows.to_run((*values, vc)))


def _runs(memory: Memory, where: Callable[[Record], bool]) -> tuple[Run, ...]:
    return tuple(_run(memory, record) for _, record in sorted(memory.tables["run"].records.items()) if where(record))


def _with_tasks(memory: Memory, record: Record) -> JobAndRun:
    job, runs = memory.tables["job"].row(record, rows.to_job), memory.tables["run"]
    tasks: list[Run] = []
    while (key := (job.id, job.run, len(tasks))) in runs.records:
        tasks.append(_run(memory, runs.records[key]))
    return job, tuple(tasks)


def find_job(memory: Memory, job_id: int) -> JobAndRun | None:
    """See `store.find_job`."""
    with memory.lock:
        record = memory.tables["job"].records.get((job_id,))
        return None if record is None else _with_tasks(memory, record)


def find_run(memory: Memory, key: RunKey) -> Run | None:
    """See `store.find_run`."""
    with memory.lock:
        record = memory.tables["run"].records.get((key.job_id, key.run, key.task))
        return None if record is None else _run(memory, record)


def find_ends(memory: Memory, job_ids: Collection[int]) -> dict[int, JobState]:
    """See `store.find_ends`."""
    with memory.lock:
        jobs = memory.tables["job"].records
        records = [jobs[(job_id,)] for job_id in job_ids if (job_id,) in jobs]
        return {record["id"]: JobState(record["state"]) for record in records if record["ended_us"] is not None}


def list_nodes(memory: Memory) -> list[Node]:
    """See `store.list_nodes`."""
    with memory.lock:
        return memory.tables["node"].rows(rows.to_node)


def find_requests(memory: Memory, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
    """See `store.find_requests`."""
    with memory.lock:
        table = memory.tables["job"]
        made = {request: table.unique["job_request_once"].get(request) for request in requests}
        return {request: table.row(table.records[key], rows.to_job) for request, key in made.items() if key is not None}


def list_jobs(
    memory: Memory,
    states: Collection[JobState] = (),
    before_id: int | None = None,
    limit: int = 100,
    vc: str = "",
    user: str = "",
    name: str = "",
) -> list[JobAndRun]:
    """See `store.list_jobs`."""
    with memory.lock:
        chosen = _chosen(memory, states, before_id, vc, user, name)
        return [_with_tasks(memory, record) for record in chosen[:limit]]


def count_jobs(
    memory: Memory,
    states: Collection[JobState] = (),
    before_id: int | None = None,
    most: int = 1_000_000,
    vc: str = "",
    user: str = "",
    name: str = "",
) -> int:
    """See `store.count_jobs`."""
    with memory.lock:
        return min(len(_chosen(memory, states, before_id, vc, user, name)), most)


def _chosen(memory: Memory, states: Collection[JobState], before_id: int | None, vc: str, user: str, name: str) -> list[Record]:
    newest_first = sorted(memory.tables["job"].records.values(), key=lambda record: -record["id"])
    return [
        record
        for record in newest_first
        if (not states or record["state"] in states)
        and (before_id is None or record["id"] < before_id)
        and vc in ("", record["vc"])
        and user in ("", record["user_name"])
        and name in ("", record["name"])
    ]


def story(memory: Memory, job_id: int) -> list[tuple[JobEvent, int]]:
    """See `store.story`."""
    with memory.lock:
        table = memory.tables["job_event"]
        found = sorted((key, record) for key, record in table.records.items() if record["job_id"] == job_id)
        return [(table.row(record, to_event), record["commit_no"]) for _, record in found]


# ---- lease -------------------------------------------------------------------------------------------------------------


def take(memory: Memory, holder: str, ttl: float, force: bool = False, address: str = "", above: int = 0) -> int | None:
    """See `store.take`."""
    check_asked(holder, ttl)
    with memory.lock:
        if not force and memory.holder not in ("", holder) and not is_free(memory.expires_at - memory.clock()):
            return None
        memory.holder, memory.address, memory.expires_at = holder, address, memory.clock() + ttl
        memory.epoch = max(memory.epoch, above) + 1
        return memory.epoch


def renew(memory: Memory, epoch: int, ttl: float) -> bool:
    """See `store.renew`."""
    with memory.lock:
        if memory.epoch != epoch or not memory.holder:
            return False
        memory.expires_at = memory.clock() + ttl
        return True


def release(memory: Memory, epoch: int) -> None:
    """See `store.release`."""
    with memory.lock:
        if memory.epoch == epoch:
            memory.holder, memory.address, memory.expires_at = "", "", memory.clock()


def holder(memory: Memory) -> Lease:
    """See `store.holder`."""
    with memory.lock:
        left = memory.expires_at - memory.clock()
        return Lease(memory.holder, memory.address, memory.epoch, left, in_session=memory.holder != "")
