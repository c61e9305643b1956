"""Between the API's messages and the SDK's values, for what explains."""

from dataclasses import asdict, fields

from ebb.v1 import scheduler_pb2

from client_sdk import models
from client_sdk._protobuf.convert import decision, duration, duration_message, enum, job, resources, task, time


def explained(message: scheduler_pb2.ExplainResponse) -> models.Explanation:
    return _explanation(message.explanation, job(message.job))


def preview(message: scheduler_pb2.SubmitResponse) -> models.Preview:
    found = message.preview
    would_be = job(message.job)
    return models.Preview(
        job=would_be,
        starts=found.starts,
        tasks=tuple(map(task, found.tasks)),
        victims=tuple(map(_victim, found.victims)),
        explanation=_explanation(found.explanation, would_be) if found.HasField("explanation") else None,
    )


def shares(message: scheduler_pb2.SharesResponse) -> models.Shares:
    return models.Shares(
        time=time(message, "time"),
        half_life=duration(message.half_life),
        shares=tuple(map(_share, message.shares)),
        more_shares=message.more_shares,
        queued=message.queued,
        next_job_ids=tuple(message.next_job_ids),
    )


def _share(message: scheduler_pb2.Share) -> models.Share:
    return models.Share(**{field.name: getattr(message, field.name) for field in fields(models.Share)})


def shares_message(value: models.Shares) -> scheduler_pb2.SharesResponse:
    """As `testing` answers it."""
    message = scheduler_pb2.SharesResponse(
        half_life=duration_message(value.half_life),
        shares=[scheduler_pb2.Share(**asdict(each)) for each in value.shares],
        more_shares=value.more_shares,
        queued=value.queued,
        next_job_ids=value.next_job_ids,
    )
    if value.time is not None:
        message.time.FromDatetime(value.time)
    return message


def _explanation(message: scheduler_pb2.Explanation, about: models.Job) -> models.Explanation:
    estimate, preempted = message.estimate, message.preempted
    return models.Explanation(
        job=about,
        blockers=tuple(map(_blocker, message.blockers)),
        ahead=message.ahead,
        ahead_job_ids=tuple(message.ahead_job_ids),
        decision=decision(message.decision) if message.HasField("decision") else None,
        victims=tuple(map(_victim, message.victims)),
        estimate=models.StartEstimate(
            time=time(estimate, "time"), basis=estimate.basis, runs_of_unknown_length=estimate.runs_of_unknown_length
        )
        if message.HasField("estimate")
        else None,
        preempted=models.PreemptionCost(
            by_job_id=preempted.by_job_id,
            by_user=preempted.by_user,
            time=time(preempted, "time"),
            away=duration(preempted.away) if preempted.HasField("away") else None,
            device_hours=preempted.device_hours,
        )
        if message.HasField("preempted")
        else None,
    )


def _blocker(message: scheduler_pb2.Blocker) -> models.Blocker:
    return models.Blocker(
        reason=enum(models.JobReason, message.reason),
        detail=message.detail,
        cause_job_id=message.cause_job_id or None,
        need=resources(message.need) if message.HasField("need") else None,
        node=message.node or None,
        free=resources(message.free) if message.HasField("free") else None,
        nodes=message.nodes,
        nodes_usable=message.nodes_usable,
        nodes_large_enough=message.nodes_large_enough,
        holders=message.holders,
        holder_job_ids=tuple(message.holder_job_ids),
        first_end=time(message, "first_end_time"),
    )


def _victim(message: scheduler_pb2.Victim) -> models.Victim:
    return models.Victim(
        job_id=message.job_id,
        user=message.user,
        node=message.node,
        resources=resources(message.resources),
        grace_period=duration(message.grace_period),
        score=message.score,
    )
