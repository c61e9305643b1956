"""One step of the engine: events in; changes, replies and orders out. The same in the service and in the simulator.

Nothing here, and nothing that is called from here, reads a clock, does I/O or draws randomness: time and the source of
randomness are arguments.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from scheduler_service.core.allocation.operations import target_nodes
from scheduler_service.core.enact import enact
from scheduler_service.core.errors import Refused
from scheduler_service.core.lifecycle.desired import desired_order, not_needed
from scheduler_service.core.lifecycle.node_health import review_closed_nodes
from scheduler_service.core.messages import WHOLE, Event, Order, Part, Plan, Reply, Rng, Step
from scheduler_service.core.model import Reason, Run
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.observe import act_on_deadlines, observe
from scheduler_service.core.operations.resuming import resume_waiting
from scheduler_service.core.state.state import State

Proposals = Generator[Plan, str | None, None]
"""A policy at work: yields a plan, is sent why that was refused (None: it was carried out), and continues."""

Policy = Callable[[State, Rng], Proposals]
_NODES_CLOSED = Reason.NODES_CLOSED


def step(state: State, events: Sequence[Event], now: Micros, rng: Rng, policy: Policy, part: Part = WHOLE) -> Step:
    """Takes the events in order, then lets the policy act until it proposes nothing more.

    The state is changed in place. The caller then either makes the changes durable and calls `state.adopt()`, or calls
    `state.undo()`, which leaves the state exactly as it was before. If `now` is earlier than the time of the last step, that
    time is used: the clock never goes back. An event that raises is undone and rejected alone; its exception is its reply.
    `part` limits what a step does in addition to its events; the rest is left for later steps.
    """
    cluster = state.cluster
    if now > cluster.clock_us:
        state.put(state.cluster_table, 0, with_changes(cluster, clock_us=now))
    else:
        now = cluster.clock_us
    replies = []
    for event in events:  # a comprehension would be a function of its own, made at each step
        replies.append(_take_event(state, event, now))
    if state.deadlines:
        act_on_deadlines(state, now, part.deadlines)
    if state.waiting_operations:
        resume_waiting(state, now, part.resumes)
    refused: list[str] = []
    enacted: list[Plan] = []
    if part.plans != 0:
        if state.pending.inventory and state.beside[_NODES_CLOSED]:
            review_closed_nodes(state)
        if state.pending.policies or state.pending.queue_grew:
            _settle(state, now, rng, policy, _Served(refused, enacted, part.plans))
    orders = _orders(state) if state.changed_runs else ()
    return Step(
        state.journal.entries,
        tuple(replies),
        orders,
        tuple(state.log),
        tuple(refused),
        tuple(state.delegated.values()) if state.delegated else (),
        tuple(enacted),
    )


def _take_event(state: State, event: Event, now: Micros) -> Reply | Exception:
    before = state.savepoint()
    try:
        return observe(state, event, now)
    except Refused as refusal:
        state.undo(before)
        return refusal
    except Exception as fault:  # one bad event must not take the others with it
        state.undo(before)
        return fault


class _Served(NamedTuple):
    refused: list[str]
    """Why plans were undone."""
    enacted: list[Plan]
    most: int | None
    """The most plans to carry out; None: no limit."""


def _settle(state: State, now: Micros, rng: Rng, policy: Policy, served: _Served) -> None:
    """Lets the policy act, and again if a plan freed resources at once (`_gave_way`)."""
    since, migrations = len(state.journal.entries), bool(state.operations.rows)
    ended = _serve(state, now, policy(state, rng), served)
    while ended and migrations and _gave_way(state, since):
        since = len(state.journal.entries)
        ended = _serve(state, now, policy(state, rng), served)
    if ended:
        state.settle()


def _serve(state: State, now: Micros, proposals: Proposals, served: _Served) -> bool:
    """Carries out the policy's plans. Returns whether it has nothing more to propose."""
    refused, enacted, most = served
    try:
        plan = next(proposals)
        while True:
            answer = enact(state, plan, now)
            if answer is not None:
                refused.append(answer)
            else:
                enacted.append(plan)
                if len(enacted) == most:
                    proposals.close()
                    return False
            plan = proposals.send(answer)
    except StopIteration:
        return True


def _gave_way(state: State, since: int) -> bool:
    """Whether a migration was given up since the journal had `since` entries, such as that of a preempted job. Its destination
    is then idle immediately, and jobs that were served before may have use for it."""
    return any(
        table is state.runs and old is not None and old.awaits and new is not None and new.phase.over
        for table, _, old, new in state.journal.entries[since:]
    )


def _orders(state: State) -> tuple[Order, ...]:
    """Orders for the nodes, as they follow from how runs changed."""
    jobs, runs, groups = state.jobs.rows, state.runs.rows, state.share_groups.rows
    concerned: list[Run] = []
    over: list[Order] = []
    for key, gone in state.changed_runs.items():
        if isinstance(key, int):  # a job whose tasks have a rendezvous
            concerned += [
                task for task in state.runs_of(key) if task.phase.counts_for_gang and task.key not in state.changed_runs
            ]
        elif (run := runs.get(key)) is not None:
            concerned.append(run)
        elif gone is not None:
            over.append(not_needed(gone))
    orders: list[Order] = []
    for run in concerned:
        group = groups.get(run.group) if run.group else None
        order = desired_order(jobs[run.job_id], run, group, target_nodes(state, run) if run.awaits else ())
        if order is not None:
            orders.append(order)
    return (*orders, *over)
