"""History of jobs that have ended, to simulate what another policy would have done with them."""

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros
from scheduler_service.store.connect import reading
from scheduler_service.store.mapping import rows
from scheduler_service.store.schema import tables

PAGE = 1000

_job, _run = tables.job, tables.run
# A gang works once its last task has begun. A run that was told to stop may save its work, and does none any more.
_began, _stopped = func.max(_run.c.started_us), func.max(func.least(_run.c.stop_us, _run.c.ended_us))
_LAUNCHES = (
    select(_run.c.job_id, _began, _stopped)
    .group_by(_run.c.job_id, _run.c.run)
    .having(func.count(_run.c.started_us) == func.count())
)


class Past(NamedTuple):
    """A job that has ended."""

    job: Job
    ready_us: Micros
    """When it was submitted, or when the last of the jobs ended that it waited for."""
    worked_us: Micros
    """How long its runs worked in all."""


def past_jobs(conn: Connection, since_us: Micros, until_us: Micros) -> Iterator[Past]:
    """The jobs that were submitted then and have ended, in the order of their ids; elements of arrays, and not the arrays.

    They are read page by page, each in a transaction of its own, so that a slow reader is no burden on the database.
    """
    query = select(_job).where(_job.c.submitted_us >= since_us, _job.c.submitted_us < until_us, _job.c.ended_us.is_not(None))
    last = 0
    while True:
        with reading(conn):
            page = [rows.to_job(row) for row in conn.execute(query.where(_job.c.id > last).order_by(_job.c.id).limit(PAGE))]
            told = _past_of(conn, [job for job in page if job.spec.array is None])
        yield from told
        if len(page) < PAGE:
            return
        last = page[-1].id


def count_live(conn: Connection, since_us: Micros, until_us: Micros) -> int:
    """How many jobs were submitted then and have not ended."""
    query = select(func.count()).where(
        _job.c.submitted_us >= since_us, _job.c.submitted_us < until_us, _job.c.ended_us.is_(None)
    )
    with reading(conn):
        return int(conn.execute(query).scalar_one())


def _past_of(conn: Connection, jobs: list[Job]) -> list[Past]:
    worked: dict[int, Micros] = {}
    for job_id, began, stopped in conn.execute(_LAUNCHES.where(_run.c.job_id.in_([job.id for job in jobs]))):
        worked[job_id] = worked.get(job_id, 0) + max(stopped - began, 0)
    arrays = select(_job).where(_job.c.id.in_(list({job.array_job for job in jobs if job.array_job})))
    owners = {job.id: job for job in map(rows.to_job, conn.execute(arrays))}
    waited = {job.id: [d.job_id for d in owners.get(job.array_job, job).spec.dependencies] for job in jobs}
    awaited = {other for others in waited.values() for other in others}
    ended = select(_job.c.id, _job.c.ended_us).where(_job.c.id.in_(list(awaited)), _job.c.ended_us.is_not(None))
    ends: dict[int, Micros] = {row.id: row.ended_us for row in conn.execute(ended)}
    return [
        Past(job, max([job.submitted_us, *(ends[other] for other in waited[job.id] if other in ends)]), worked.get(job.id, 0))
        for job in jobs
    ]
