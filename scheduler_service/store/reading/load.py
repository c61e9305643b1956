"""Reads: the live rows for a new leader, and single look-ups for the API on connections of their own.

Every function begins and ends its own transaction, so the connection must be in none. Each raises Unavailable when the
database cannot be asked.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, func, select, text, tuple_

from scheduler_service.core.model import (
    ENDED,
    Cluster,
    Earmark,
    Job,
    JobEvent,
    JobState,
    Node,
    NodeDevice,
    Run,
    RunKey,
)
from scheduler_service.core.model.estimates import History
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import Binding, VirtualCluster
from scheduler_service.core.model.values import Micros
from scheduler_service.store.connect import reading
from scheduler_service.store.mapping import rows
from scheduler_service.store.mapping.story import to_event
from scheduler_service.store.reading.exchange import Market, live_market
from scheduler_service.store.schema import tables


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state that a new leader starts from: all live rows as of one commit, each kind in the order of its keys."""

    cluster: Cluster | None
    """None before the first commit of all."""
    jobs: tuple[Job, ...]
    runs: tuple[Run, ...]
    share_groups: tuple[ShareGroup, ...]
    operations: tuple[Operation, ...]
    nodes: tuple[Node, ...]
    devices: tuple[NodeDevice, ...]
    earmarks: tuple[Earmark, ...]
    vcs: tuple[VirtualCluster, ...]
    bindings: tuple[Binding, ...]
    memos: tuple[Memo, ...]
    history: tuple[History, ...]
    market: Market
    last_runs: tuple[Run, ...]
    """The last runs of jobs that are live and have no active run: for readers, who show where a job ran."""
    commit_no: int


_job, _run, _event = tables.job, tables.run, tables.job_event
# What is read takes a while to be made into rows between two statements, and a transaction that only reads is in nobody's way.
_ONE_MOMENT = text(
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL idle_in_transaction_session_timeout = '60s'"
)
_CLUSTER = select(tables.cluster)
_COMMIT_NO = select(tables.leader.c.commit_no)
_JOBS = select(_job).where(_job.c.ended_us.is_(None)).order_by(_job.c.id)
_OF_JOB = _run.c.job_id == _job.c.id
_A_RUN = select(_run, _job.c.vc).join(_job, _OF_JOB)
_RUNS = _A_RUN.where(_run.c.ended_us.is_(None)).order_by(_run.c.job_id, _run.c.run, _run.c.task)
_SHARE_GROUPS = select(tables.share_group).order_by(tables.share_group.c.id)
_OPERATIONS = select(tables.operation).order_by(tables.operation.c.id)
_LAST_RUNS = (
    select(_run, _job.c.vc)
    .join(_job, and_(_OF_JOB, _run.c.run == _job.c.run))
    .where(_job.c.ended_us.is_(None), _run.c.ended_us.is_not(None))
    .order_by(_run.c.job_id, _run.c.task)
)
_NODES = select(tables.node).order_by(tables.node.c.id)
_DEVICES = select(tables.device).order_by(tables.device.c.node, tables.device.c.index)
_EARMARKS = select(tables.earmark).order_by(tables.earmark.c.id)
_VCS = select(tables.virtual_cluster).order_by(tables.virtual_cluster.c.id)
_BINDING = tables.cell_binding
_BINDINGS = select(_BINDING).order_by(_BINDING.c.pool.collate("C"), _BINDING.c.level.collate("C"), _BINDING.c.index)
_MEMOS = select(tables.memo).order_by(tables.memo.c.policy.collate("C"), tables.memo.c.subject.collate("C"))
_HISTORY = select(tables.history).order_by(tables.history.c.user_name.collate("C"), tables.history.c.script.collate("C"))
_FIRST_TASK = and_(_OF_JOB, _run.c.run == _job.c.run, _run.c.task == 0)
_WITH_RUN = select(_job, _run).select_from(_job.outerjoin(_run, _FIRST_TASK))
_JOB_COLUMNS = len(_job.columns)
_RUN = _A_RUN.where(_run.c.job_id == bindparam("job_id"), _run.c.run == bindparam("run"), _run.c.task == bindparam("task"))


def load(conn: Connection, jobs: bool = True) -> Loaded:
    """All live rows as of one commit. Rows of finished jobs and runs are not among them.

    Without `jobs` there are only the rows that say what nodes have and what is taken of it.
    """
    with reading(conn):
        conn.execute(_ONE_MOMENT)
        found = conn.execute(_CLUSTER).one_or_none()
        return Loaded(
            cluster=None if found is None else rows.to_cluster(found),
            jobs=tuple(map(rows.to_job, conn.execute(_JOBS))) if jobs else (),
            runs=tuple(map(rows.to_run, conn.execute(_RUNS))),
            share_groups=tuple(map(rows.to_share_group, conn.execute(_SHARE_GROUPS))),
            operations=tuple(map(rows.to_operation, conn.execute(_OPERATIONS))),
            nodes=tuple(map(rows.to_node, conn.execute(_NODES))),
            devices=tuple(map(rows.to_device, conn.execute(_DEVICES))),
            earmarks=tuple(map(rows.to_earmark, conn.execute(_EARMARKS))),
            vcs=tuple(map(rows.to_vc, conn.execute(_VCS))),
            bindings=tuple(map(rows.to_binding, conn.execute(_BINDINGS))),
            memos=tuple(map(rows.to_memo, conn.execute(_MEMOS))) if jobs else (),
            history=tuple(map(rows.to_history, conn.execute(_HISTORY))) if jobs else (),
            market=live_market(conn),
            last_runs=tuple(map(rows.to_run, conn.execute(_LAST_RUNS))) if jobs else (),
            commit_no=conn.execute(_COMMIT_NO).scalar_one(),
        )


JobAndRun = tuple[Job, tuple[Run, ...]]
"""A job, and every task of its current or last run; none before the first."""


def _with_tasks(conn: Connection, found: Sequence[Sequence[Any]]) -> list[JobAndRun]:
    jobs = [(rows.to_job(row), row[_JOB_COLUMNS:]) for row in found]
    gangs = [(job.id, job.run) for job, first in jobs if job.launch_spec.gang and first[0] is not None]
    others: dict[int, list[Run]] = {}
    if gangs:
        query = _A_RUN.where(tuple_(_run.c.job_id, _run.c.run).in_(gangs), _run.c.task > 0).order_by(_run.c.task)
        for run in map(rows.to_run, conn.execute(query)):
            others.setdefault(run.job_id, []).append(run)
    return [
        (job, () if first[0] is None else (rows.to_run((*first, job.spec.vc)), *others.get(job.id, ()))) for job, first in jobs
    ]


def find_job(conn: Connection, job_id: int) -> JobAndRun | None:
    """The job and its current or last run, whether it has ended or not; None when there is no such job."""
    with reading(conn):
        found = _with_tasks(conn, conn.execute(_WITH_RUN.where(_job.c.id == job_id)).all())
    return found[0] if found else None


def find_run(conn: Connection, key: RunKey) -> Run | None:
    """A task of any run of a job, ended or not; None when there is no such task."""
    with reading(conn):
        found = conn.execute(_RUN, {"job_id": key.job_id, "run": key.run, "task": key.task}).one_or_none()
    return None if found is None else rows.to_run(found)


def find_ends(conn: Connection, job_ids: Collection[int]) -> dict[int, JobState]:
    """How those of the jobs ended that have."""
    query = select(_job.c.id, _job.c.state).where(_job.c.id.in_(list(job_ids)), _job.c.ended_us.is_not(None))
    with reading(conn):
        return {job_id: JobState(state) for job_id, state in conn.execute(query)}


def find_ended_before(conn: Connection, job_ids: Collection[int], time_us: Micros) -> list[int]:
    """Those of the jobs that ended before this time, in order."""
    query = select(_job.c.id).where(_job.c.id.in_(list(job_ids)), _job.c.ended_us < time_us).order_by(_job.c.id)
    with reading(conn):
        return list(conn.execute(query).scalars())


def list_nodes(conn: Connection) -> list[Node]:
    with reading(conn):
        return [rows.to_node(row) for row in conn.execute(_NODES)]


def find_requests(conn: Connection, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
    """The jobs that these requests made, by (user, request_id); an empty request_id made none."""
    asked = [(user, request_id) for user, request_id in requests if request_id]
    query = select(_job).where(tuple_(_job.c.user_name, _job.c.request_id).in_(asked), _job.c.request_id != "")
    with reading(conn):
        found = [rows.to_job(row) for row in conn.execute(query)] if asked else []
    return {(job.user, job.request_id): job for job in found}


def list_jobs(
    conn: Connection,
    states: Collection[JobState] = (),
    before_id: int | None = None,
    limit: int = 100,
    vc: str = "",
    user: str = "",
    name: str = "",
) -> list[JobAndRun]:
    """Jobs with their current or last runs, newest first: of these states (none: of every state), of this virtual cluster,
    user and name (empty: of all), with ids less than `before_id`, and at most `limit`. The next page begins before the last id
    of this.

    Live jobs and a virtual cluster's have an index. For a user's or a name's, jobs are read until there are enough: each
    further index would cost every submit.
    """
    query = _filter_jobs(_WITH_RUN, states, before_id, vc, user, name).order_by(_job.c.id.desc()).limit(limit)
    with reading(conn):
        return _with_tasks(conn, conn.execute(query).all())


def count_jobs(
    conn: Connection,
    states: Collection[JobState] = (),
    before_id: int | None = None,
    most: int = 1_000_000,
    vc: str = "",
    user: str = "",
    name: str = "",
) -> int:
    """How many jobs there are of those that `list_jobs` lists; `most` are counted at most."""
    found = _filter_jobs(select(_job.c.id), states, before_id, vc, user, name).limit(most).subquery()
    with reading(conn):
        return int(conn.execute(select(func.count()).select_from(found)).scalar_one())


def _filter_jobs(
    query: Select[Any], states: Collection[JobState], before_id: int | None, vc: str, user: str, name: str
) -> Select[Any]:
    if states:
        query = query.where(_job.c.state.in_([int(state) for state in states]))
        if ENDED.isdisjoint(states):
            query = query.where(_job.c.ended_us.is_(None))  # so that the index of live jobs serves
    if vc:
        query = query.where(_job.c.vc == vc)
    if user:
        query = query.where(_job.c.user_name == user)
    if name:
        query = query.where(_job.c.name == name)
    if before_id is not None:
        query = query.where(_job.c.id < before_id)
    return query


def story(conn: Connection, job_id: int) -> list[tuple[JobEvent, int]]:
    """The job's events in order, each with the number of the commit that made it durable; none for an unknown job."""
    query = select(_event).where(_event.c.job_id == job_id).order_by(_event.c.commit_no, _event.c.line)
    with reading(conn):
        return [(to_event(row), row.commit_no) for row in conn.execute(query)]
