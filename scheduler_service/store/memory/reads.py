"""Reads of jobs, runs and nodes in memory, with names, arguments and errors as in `store.reading`."""

from collections.abc import Callable, Collection

from scheduler_service.core.model import Job, JobEvent, JobState, Node, Run, RunKey
from scheduler_service.store.mapping import rows
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.mapping.story import to_event
from scheduler_service.store.memory.database import Memory
from scheduler_service.store.memory.exchange import live_market
from scheduler_service.store.reading.load import JobAndRun, Loaded


def load(memory: Memory, jobs: bool = True) -> Loaded:
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
            share_groups=tuple(of["share_group"].rows(rows.to_share_group)),
            operations=tuple(of["operation"].rows(rows.to_operation)),
            nodes=tuple(of["node"].rows(rows.to_node)),
            devices=tuple(of["device"].rows(rows.to_device)),
            earmarks=tuple(of["earmark"].rows(rows.to_earmark)),
            vcs=tuple(of["virtual_cluster"].rows(rows.to_vc)),
            bindings=tuple(of["cell_binding"].rows(rows.to_binding)),
            memos=tuple(of["memo"].rows(rows.to_memo)) if jobs else (),
            history=tuple(of["history"].rows(rows.to_history)) if jobs else (),
            market=live_market(memory),
            last_runs=_runs(memory, is_last) if jobs else (),
            commit_no=memory.commit_no,
        )


def _run_of(memory: Memory, record: Record) -> Run:
    vc = memory.tables["job"].records[(record["job_id"],)]["vc"]
    return memory.tables["run"].row(record, lambda values: rows.to_run((*values, vc)))


def _runs(memory: Memory, where: Callable[[Record], bool]) -> tuple[Run, ...]:
    return tuple(_run_of(memory, record) for _, record in sorted(memory.tables["run"].records.items()) if where(record))


def _with_tasks(memory: Memory, record: Record) -> JobAndRun:
    job, runs = memory.tables["job"].row(record, rows.to_job), memory.tables["run"]
    tasks: list[Run] = []
    while (key := (job.id, job.run, len(tasks))) in runs.records:
        tasks.append(_run_of(memory, runs.records[key]))
    return job, tuple(tasks)


def find_job(memory: Memory, job_id: int) -> JobAndRun | None:
    with memory.lock:
        record = memory.tables["job"].records.get((job_id,))
        return None if record is None else _with_tasks(memory, record)


def find_run(memory: Memory, key: RunKey) -> Run | None:
    with memory.lock:
        record = memory.tables["run"].records.get((key.job_id, key.run, key.task))
        return None if record is None else _run_of(memory, record)


def list_runs(memory: Memory, job_id: int, after: tuple[int, int] | None = None, limit: int = 100) -> list[Run]:
    with memory.lock:
        records = [record for record in memory.tables["run"].records.values() if record["job_id"] == job_id]
        order = sorted(records, key=lambda record: (-record["run"], record["task"]))
        chosen = [r for r in order if after is None or (-r["run"], r["task"]) > (-after[0], after[1])]
        return [_run_of(memory, record) for record in chosen[:limit]]


def find_ends(memory: Memory, job_ids: Collection[int]) -> dict[int, JobState]:
    with memory.lock:
        jobs = memory.tables["job"].records
        records = [jobs[(job_id,)] for job_id in job_ids if (job_id,) in jobs]
        return {record["id"]: JobState(record["state"]) for record in records if record["ended_us"] is not None}


def find_ended_before(memory: Memory, job_ids: Collection[int], time_us: int) -> list[int]:
    with memory.lock:
        jobs = memory.tables["job"].records
        ends = {job_id: jobs[(job_id,)]["ended_us"] for job_id in job_ids if (job_id,) in jobs}
        return sorted(job_id for job_id, end in ends.items() if end is not None and end < time_us)


def list_nodes(memory: Memory) -> list[Node]:
    with memory.lock:
        return memory.tables["node"].rows(rows.to_node)


def find_requests(memory: Memory, requests: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
    with memory.lock:
        return memory.tables["job"].having("job_request_once", requests, rows.to_job)


def list_jobs(
    memory: Memory,
    states: Collection[JobState] = (),
    before_id: int | None = None,
    limit: int = 100,
    vc: str = "",
    user: str = "",
    name: str = "",
) -> list[JobAndRun]:
    with memory.lock:
        chosen = _pick_jobs(memory, states, before_id, vc, user, name)
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
    with memory.lock:
        return min(len(_pick_jobs(memory, states, before_id, vc, user, name)), most)


def _pick_jobs(
    memory: Memory, states: Collection[JobState], before_id: int | None, vc: str, user: str, name: str
) -> list[Record]:
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
    with memory.lock:
        table = memory.tables["job_event"]
        found = sorted((key, record) for key, record in table.records.items() if record["job_id"] == job_id)
        return [(table.row(record, to_event), record["commit_no"]) for _, record in found]
