"""Answers that the engine's thread gives between two steps: why a job waits, and what a submit would do."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from ebb.v1 import job_pb2
from ebb.v1 import scheduler_pb2 as pb

from scheduler_service.core.engine import Policy, step
from scheduler_service.core.messages import Accepted, Rng, Submitted
from scheduler_service.core.model import Decision, EventKind, Job, JobEvent, JobState, Run
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.explain.explanation import Explanation, Victim
from scheduler_service.policies.stages import Stages
from scheduler_service.rpc.backend import Backend, Leading
from scheduler_service.rpc.convert.jobs import decision_out, job_out, task_out
from scheduler_service.rpc.convert.runs import save_out
from scheduler_service.rpc.convert.values import Nodes, duration_out, message_of, time_out, vector_out
from scheduler_service.rpc.redaction import Sight, sight
from scheduler_service.run.read_model import JobView


class Shown(NamedTuple):
    """A victim with what there is to say of it."""

    victim: Victim
    job: Job
    run: Run


class Explained(NamedTuple):
    explanation: Explanation
    victims: tuple[Shown, ...]


class Previewed(NamedTuple):
    job: Job
    runs: tuple[Run, ...]
    decision: Decision | None
    victims: tuple[Shown, ...]
    explained: Explained | None


class Answers:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def explain(self, job: Job) -> pb.Explanation:
        """Explain a job's state; empty if the job has ended."""
        leading = self._backend.leading
        job_id, stages = job.id, leading.stages

        def question(state: State, now: Micros, rng: Rng, _policy: Policy) -> Explained:
            live = state.jobs.rows.get(job_id)
            return Explained(Explanation(), ()) if live is None else _explain_job(state, live, now, rng, stages)

        return _explanation_out(await leading.service.ask(question), leading.view.nodes)

    async def preview(self, event: Submitted) -> pb.SubmitResponse:
        """Takes the submit as the next step would, and undoes it. Raises Refused as Submit does."""
        leading = self._backend.leading
        stages = leading.stages

        def question(state: State, now: Micros, rng: Rng, policy: Policy) -> Previewed:
            return _preview(state, event, now, rng, policy, stages)

        return _preview_out(await leading.service.ask(question), leading, sight(self._backend.secrets))


# ---- in the engine's thread --------------------------------------------------------------------------------------------


def _explain_job(state: State, job: Job, now: Micros, rng: Rng, stages: Stages) -> Explained:
    found = explain(state, job, now, rng, stages)
    return Explained(found, tuple(_show_victim(state, victim) for victim in found.victims))


def _show_victim(state: State, victim: Victim) -> Shown:
    return Shown(victim, state.jobs.rows[victim.key.job_id], state.runs.rows[victim.key])


def _preview(state: State, event: Submitted, now: Micros, rng: Rng, policy: Policy, stages: Stages) -> Previewed:
    taken = step(state, [event], now, rng, policy)
    reply = taken.replies[0]
    if isinstance(reply, Exception):
        raise reply
    assert isinstance(reply, Accepted)
    job = state.jobs.rows[reply.job_id]
    elements = state.elements_of.get(job.id)
    runs = tuple(state.runs_of(min(elements) if elements else job.id))
    told = next((line.decision for line in taken.log if line.job_id == job.id and line.kind is EventKind.PREEMPTING), None)
    scores = {c.key: c.score for c in told.candidates} if told else {}
    left = [line.job_id for line in taken.log if line.kind is EventKind.PREEMPTED and line.cause_job == job.id]
    victims = [Victim(run.key, scores.get(run.key, 0.0)) for job_id in left for run in state.runs_of(job_id)]
    explained = _explain_job(state, job, now, rng, stages) if job.state is JobState.QUEUED and not elements else None
    return Previewed(job, runs, told, tuple(_show_victim(state, victim) for victim in victims), explained)


# ---- out ---------------------------------------------------------------------------------------------------------------


def _victim_out(shown: Shown, nodes: Nodes) -> pb.Victim:
    return pb.Victim(
        job_id=shown.job.id,
        user=shown.job.user,
        node=nodes[shown.run.node].name,
        resources=vector_out(shown.run.demand),
        grace_period=duration_out(shown.job.spec.grace_us),
        score=shown.victim.score,
    )


def _explanation_out(explained: Explained, nodes: Nodes) -> pb.Explanation:
    found = explained.explanation
    out = pb.Explanation(
        blockers=[
            message_of(
                pb.Blocker,
                b,
                cause_job_id=b.cause_job,
                need=vector_out(b.need) if b.nodes else None,
                node=nodes[b.node].name if b.node in nodes else "",
                free=vector_out(b.free) if b.node else None,
                nodes_usable=b.usable,
                nodes_large_enough=b.large_enough,
                holder_job_ids=b.holder_jobs,
                first_end_time=time_out(b.first_end_us),
            )
            for b in found.blockers
        ],
        ahead=found.ahead,
        ahead_job_ids=found.ahead_jobs,
        sharing_reason=found.joined,
        victims=[_victim_out(shown, nodes) for shown in explained.victims],
    )
    if found.decision is not None:
        out.decision.CopyFrom(decision_out(found.decision, nodes))
    if (estimate := found.estimate) is not None:
        out.estimate.basis, out.estimate.runs_of_unknown_length = estimate.basis, estimate.unknown
        if estimate.at_us is not None:
            out.estimate.time.FromMicroseconds(estimate.at_us)
    return out


def _preview_out(found: Previewed, leading: Leading, seen: Sight) -> pb.SubmitResponse:
    nodes = leading.view.nodes
    preview = pb.Preview(
        starts=bool(found.runs),
        tasks=[task_out(run, nodes) for run in found.runs],
        victims=[_victim_out(shown, nodes) for shown in found.victims],
    )
    if found.explained is not None:
        preview.explanation.CopyFrom(_explanation_out(found.explained, nodes))
        if found.decision is not None:
            preview.explanation.decision.CopyFrom(decision_out(found.decision, nodes))
    job: job_pb2.Job = job_out(JobView(found.job, found.runs), nodes, seen)
    job.id = 0
    return pb.SubmitResponse(job=job, preview=preview)


_BACK = (EventKind.STARTED, EventKind.SUSPENDED, EventKind.HELD)


def preempted_out(story: Sequence[JobEvent], found: JobView) -> pb.PreemptionCost | None:
    """Return the cost of the job's last preemption from its events; None if it was never preempted. Time for which its user
    suspended or held it afterwards does not count."""
    last = max((i for i, line in enumerate(story) if line.kind is EventKind.PREEMPTED), default=None)
    if last is None:
        return None
    told = story[last]
    back = next((line.at_us for line in story[last:] if line.kind in _BACK), None)
    until = back if back is not None else found.job.ended_us
    away = max((time.time_ns() // 1000 if until is None else until) - told.at_us, 0)
    whole = found.job.last_save
    return pb.PreemptionCost(
        save=save_out(whole.worst) if whole is not None and whole.run == told.run else None,
        by_job_id=told.cause_job,
        time=time_out(told.at_us),
        away=duration_out(away),
        device_hours=found.job.launch_spec.demand.devices * away / 3.6e9,
    )
