"""Thrifty: a trial waits for runs that are stopping already, before more are preempted.

A trial starts wherever it fits first, and often that is not where its victims are: another run ended by itself in the meantime.
The victims still stop, but no trial waits for them. FitGpp does not count what they will release, and preempts others for the
next trial. Here it is promised to that trial, if it comes as soon as FitGpp's own victims would be gone.
"""

from collections.abc import Iterator

from scheduler_service.core.messages import AddEarmark, Plan, Preempt, Rng
from scheduler_service.core.model import Decision, Job, Run
from scheduler_service.core.model.values import SECOND, ZERO, Micros, add, fits
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.policy import fitgpp_victims
from scheduler_service.policies.fitgpp.preemption_stages import preempting
from scheduler_service.policies.options import PreemptionSettings

TOO_LATE = 60 * SECOND
"""After its grace period a run is killed, and gone within a moment. One that is still there then is stuck."""


def thrifty_victims(state: State, trial: Job, settings: PreemptionSettings, rng: Rng) -> Plan | None:
    """FitGpp's plan, or one that preempts no run and makes the trial wait no longer."""
    plan = fitgpp_victims(state, trial, settings, rng)
    by = None if plan is None else state.cluster.clock_us + _takes(state, plan)
    return _share(state, trial, settings, by) or plan


def _takes(state: State, plan: Plan) -> Micros:
    """How long its victims may take to leave."""
    return max((state.jobs.rows[act.job_id].spec.grace_us for act in plan if isinstance(act, Preempt)), default=0)


def _share(state: State, trial: Job, settings: PreemptionSettings, by: Micros | None) -> Plan | None:
    """A plan that waits for runs that stop for no other job and are gone by then (None: at any time), if they make room."""
    if by is not None and _longest_wait(state) > by:
        return None  # another trial waits for longer: what becomes free before is its, and this one would come too late
    offered, tasks = state.free_resources.offered_resources(state.suitable_for(trial.spec)).copy(), trial.spec.tasks()
    leaving: list[Run] = []
    for run in sorted(_leaving_for_nobody(state, trial), key=lambda run: (_exit_limit(run), run.key)):
        if by is not None and _exit_limit(run) > by:
            return None
        offered[:, run.node] += run.demand
        leaving.append(run)
        nodes = pack(tasks, offered.copy())
        if nodes is not None:
            decision = Decision(
                trial.id, min(nodes), trial.spec.demand, "leaving", settings.s, settings.cap, 0.0, 0, len(leaving), ()
            )
            return tuple(_earmarks(state, trial, nodes, leaving, decision))
    return None


def _leaving_for_nobody(state: State, trial: Job) -> list[Run]:
    """Stopping runs that no job waits for, on nodes that the trial may use. Not those that are long overdue: it is unknown when
    they will be gone, and they would come first. Not members of share groups: what one releases depends on the others."""
    late = state.cluster.clock_us - TOO_LATE
    told = [run for run in state.runs.rows.values() if run.stop_us is not None and _exit_limit(run) > late]
    return [
        run
        for run in told
        if not run.group
        and run.key not in state.promised_by
        and state.is_usable(trial.spec, run.node)
        and not state.holds_faulty(run)
    ]


def _longest_wait(state: State) -> Micros:
    """When the last run has left that some trial waits for."""
    promised = (state.runs.rows[key] for key in state.promised_by)
    return max(map(_exit_limit, promised), default=0)


def _exit_limit(run: Run) -> Micros:
    """When a run that was told to stop has exited, at the latest."""
    return (run.stop_us or 0) + run.stop_grace_us


def _earmarks(state: State, trial: Job, nodes: list[int], leaving: list[Run], decision: Decision) -> Iterator[AddEarmark]:
    """On each node of the trial what its tasks need there, with as many of those that leave as this takes."""
    tasks = trial.spec.tasks()
    for node in sorted(set(nodes)):
        ranks = tuple(rank for rank, at in enumerate(nodes) if at == node)
        want, room, keys = ZERO, state.free_resources.free(node), []
        for rank in ranks:
            want = add(want, tasks[rank])
        for run in leaving:
            if run.node == node and not fits(want, room):
                room = add(room, run.demand)
                keys.append(run.key)
        yield AddEarmark(trial.id, node, want, tuple(keys), decision, ranks, configuration=trial.configuration)


stages = preempting(thrifty_victims)
