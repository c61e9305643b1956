"""Lines of a job's story, and the decisions in them, as records of the tables, and back; see `rows`."""

from collections.abc import Sequence
from typing import Any

from scheduler_service.core.model import CandidateScore, Decision, EventKind, JobEvent, Reason, RunKey
from scheduler_service.core.model.values import Vector
from scheduler_service.store.mapping.rows import Record, number


def event_new(line: int, e: JobEvent) -> Record:
    return {
        "job_id": e.job_id,
        "line": line,
        "at_us": e.at_us,
        "kind": e.kind,
        "run": e.run,
        "node": e.node,
        "reason": e.reason,
        "cause_job": e.cause_job,
        "exit_code": e.exit_code,
        "exit_signal": e.exit_signal,
        "text": e.text,
        "decision": None if e.decision is None else decision_new(e.decision),
    }


def decision_new(d: Decision) -> Record:
    return {
        "trial": d.trial,
        "node": d.node,
        "demand": d.demand,
        "rule": d.rule,
        "s": number(d.s),
        "cap": d.cap,
        "max_size": number(d.max_size),
        "max_grace_us": d.max_grace_us,
        "considered": d.considered,
        "candidates": [
            {
                "key": c.key,
                "node": c.node,
                "demand": c.demand,
                "node_free": c.node_free,
                "size": number(c.size),
                "grace_us": c.grace_us,
                "score": number(c.score),
                "preempted_for_trial": c.preempted_for_trial,
                "sufficient": c.sufficient,
                "chosen": c.chosen,
            }
            for c in d.candidates
        ],
    }


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
