"""Lines of a job's story, and the decisions in them, as records of the tables, and back; see `rows`."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from scheduler_service.core.model import CandidateScore, Decision, EventKind, JobEvent, Reason, RunKey
from scheduler_service.core.model.values import Vector
from scheduler_service.store.mapping.records import Record, recorder
from scheduler_service.store.mapping.rows import number
from scheduler_service.store.schema.jobs import job_event


def decision_new(d: Decision) -> Record:
    candidates = [{**_fields(c), "size": number(c.size), "score": number(c.score)} for c in d.candidates]
    return {**_fields(d), "s": number(d.s), "max_size": number(d.max_size), "candidates": candidates}


def _fields(row: Decision | CandidateScore) -> Record:
    return {field.name: getattr(row, field.name) for field in fields(row)}


_event = recorder(
    (column.name for column in job_event.columns if column.name not in ("commit_no", "line")),
    {"decision": lambda event: None if event.decision is None else decision_new(event.decision)},
)


def event_new(line: int, e: JobEvent) -> Record:
    return {"line": line, **_event(e)}


def to_event(v: Sequence[Any]) -> JobEvent:
    job_id, _commit_no, _line, at_us, kind, run, node, reason, cause_job, code, signal, text, decision = v
    why = None if decision is None else to_decision(decision)
    return JobEvent(job_id, at_us, EventKind(kind), run, node, Reason(reason), cause_job, code, signal, text, why)


def to_decision(r: Record) -> Decision:
    numbers = {"s": float(r["s"]), "max_size": float(r["max_size"])}
    candidates = tuple(_to_candidate(c) for c in r["candidates"])
    return Decision(**{**r, **numbers, "demand": Vector(*r["demand"]), "candidates": candidates})


def _to_candidate(r: Record) -> CandidateScore:
    return CandidateScore(
        **{
            **r,
            "key": RunKey(*r["key"]),
            "demand": Vector(*r["demand"]),
            "node_free": Vector(*r["node_free"]),
            "size": float(r["size"]),
            "score": float(r["score"]),
        }
    )
