"""Reads of the runs of one job, those that have ended included."""

from sqlalchemy import Connection, or_, select

from scheduler_service.core.model import Run
from scheduler_service.store.connect import reading
from scheduler_service.store.mapping import rows
from scheduler_service.store.schema import tables

_job, _run = tables.job, tables.run


def list_runs(conn: Connection, job_id: int, after: tuple[int, int] | None = None, limit: int = 100) -> list[Run]:
    """The tasks of a job's runs, the newest run first and its tasks by rank: those after this (run, task), at most `limit`."""
    query = select(_run, _job.c.vc).join(_job, _run.c.job_id == _job.c.id).where(_run.c.job_id == job_id)
    if after is not None:
        run, task = after
        query = query.where(or_(_run.c.run < run, (_run.c.run == run) & (_run.c.task > task)))
    query = query.order_by(_run.c.run.desc(), _run.c.task).limit(limit)
    with reading(conn):
        return [rows.to_run(row) for row in conn.execute(query)]
