"""Which running jobs lose what they have done if they are stopped now, by what their agents see of them."""

import asyncio
import time
from collections.abc import Iterable

from ebb.agent.v1 import agent_link_pb2
from ebb.v1 import job_pb2

from scheduler_service.core.engine import Policy, step
from scheduler_service.core.messages import Event, Rng
from scheduler_service.core.model import Run
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.rpc.backend import Backend, Leading
from scheduler_service.rpc.convert.values import duration_out

_AGAIN = 0.1
_YOUNG: Micros = 5_000_000
"""Age of a run up to which its agent may not have reported yet. An older agent version never reports."""


async def jobs_at_risk(backend: Backend, jobs: Iterable[int], wait: bool = False) -> list[job_pb2.JobAtRisk]:
    """Those of these jobs whose work would be lost. `wait`: a program may just have registered, so its agent may look again."""
    asked = tuple(jobs)
    until = time.monotonic() + (min(backend.heartbeat_seconds, 5.0) + backend.look_seconds if wait else 0)
    while True:
        leading, now = backend.leading, time.time_ns() // 1000
        lost, unsure = [], False
        for job_id in asked:
            runs = _executing(leading, job_id)
            means = [_means(leading, run) for run in runs]
            if runs and all(each == agent_link_pb2.SAVE_MEANS_NONE for each in means):  # a rank may save for all
                lost.append(_at_risk(leading, runs[0], now))
            elif any(not each and now - (run.started_us or now) < _YOUNG for run, each in zip(runs, means, strict=True)):
                unsure = True
        if not (lost or unsure) or time.monotonic() >= until:
            return lost
        await asyncio.sleep(_AGAIN)


async def try_out(backend: Backend, event: Event) -> None:
    """Takes the event as the next step would, and undoes it. Raises Refused as the call itself would."""

    def question(state: State, now: Micros, rng: Rng, policy: Policy) -> None:
        reply = step(state, [event], now, rng, policy).replies[0]
        if isinstance(reply, Exception):
            raise reply

    await backend.leading.service.ask(question)


def _executing(leading: Leading, job_id: int) -> list[Run]:
    """The runs of a job that have done something which they could lose, and are not stopped already."""
    found = leading.view.job(job_id)
    runs = () if found is None else found.runs
    return [run for run in runs if run.started_us is not None and run.ended_us is None and run.stop_us is None]


def _means(leading: Leading, run: Run) -> int:
    link = leading.dispatch.connected_link(leading.view.nodes[run.node].name)
    return 0 if link is None else link.means.get(run.key, 0)


def _at_risk(leading: Leading, run: Run, now: Micros) -> job_pb2.JobAtRisk:
    job = leading.view.jobs[run.job_id]
    ran = duration_out(max(now - (run.started_us or now), 0))
    return job_pb2.JobAtRisk(job_id=job.id, user=job.user, name=job.spec.name, run_time=ran)
