"""Runs that were told to stop and have not ended in time: their nodes are told again, at growing intervals.

This is a safety net: an agent ends each run within its grace period. A silent node is not told, as nothing is known of it.
"""

from scheduler_service.core.model import EventKind, NodeState, Run
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.runs import OVERDUE_US
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def ask_again(state: State, now: Micros, run: Run) -> None:
    """Tells a node again to stop a run that should have ended. The overdue time doubles until the next attempt."""
    node = state.nodes.rows[run.node]
    assert run.stop_us is not None  # it was told to stop
    late = now - run.stop_us - run.stop_grace_us
    again = max(late, OVERDUE_US)
    if node.state is not NodeState.UP:
        state.put(state.runs, run.key, with_changes(run, overdue_us=now + again))
        return
    state.put(state.runs, run.key, with_changes(run, generation=run.generation + 1, overdue_us=now + again))
    which = f"task {run.task}" if run.task else "the run"
    text = (
        f"{which} should have ended {late / SECOND:.0f} s ago, after its grace period of {run.stop_grace_us / SECOND:g} s; "
        f"node {node.name} is told again, and once more in {again / SECOND:.0f} s. If that does not help, restart its agent"
    )
    log_event(state, now, run.job_id, EventKind.STOP_OVERDUE, run=run.run, node=run.node, cause_job=run.stop_for, text=text)


def describe(state: State, run: Run, now: Micros) -> str:
    """Describe to people when a run that was told to stop ends, or should have ended."""
    assert run.stop_us is not None  # it was told to stop
    node, left = state.nodes.rows[run.node], run.stop_us + run.stop_grace_us - now
    where = f"run {run.key} on node {node.name}"
    if left >= 0:
        return f"{where} was told to stop, and is killed in {left / SECOND:.0f} s if it has not ended"
    late = f"{where} should have ended {-left / SECOND:.0f} s ago"
    if node.state is not NodeState.UP:
        return f"{late}; its node is silent"
    if -left < OVERDUE_US:
        return late
    return f"{late}; its node is told again and again. Look at the log of its agent, and restart that: no job ends by it"


def node_returned(state: State, now: Micros, node: int) -> None:
    """Restarts the time limit for stopping runs of a node that has returned: it is told again which runs are to stop."""
    for key in sorted(state.runs_on.get(node, ())):
        run = state.runs.rows[key]
        if run.stop_us is not None:
            due = max(now, run.stop_us + run.stop_grace_us) + OVERDUE_US
            if run.due_us != due:
                state.put(state.runs, key, with_changes(run, overdue_us=due))
