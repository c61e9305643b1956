"""Updates of policies' memos: those about jobs that began or ceased to run, and those that are due."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from scheduler_service.core.allocation.operations import operation_of
from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Plan, Remember, Rng, Unpark
from scheduler_service.core.model import Job, OperationPhase
from scheduler_service.core.model.memo import vc_of
from scheduler_service.core.operations.parking import BY_USER
from scheduler_service.core.state.queue_order import QueueOrder
from scheduler_service.core.state.state import State

Remembers = Callable[[State, Job], Iterable[Remember]]
"""See `stages.Stages.remember`."""


class Notes(NamedTuple):
    """The functions by which a policy takes notes; see `stages.Stages`."""

    remember: Remembers = lambda _state, _job: ()
    account: Callable[[State, str], Iterable[Remember]] = lambda _state, _subject: ()
    policy_in: Callable[[State, str], str] = lambda state, vc: _policy_of(_order_in(state, vc))
    """The name of the policy whose memos about no job are kept, on the site (empty) or in a virtual cluster; empty: of none.
    Memos of other policies are forgotten when they are due."""


class Noted(NamedTuple):
    """The jobs and subjects about which notes were taken."""

    jobs: frozenset[int] = frozenset()
    subjects: frozenset[tuple[str, str]] = frozenset()


NOTHING = Noted()


def memo_updates(serve: Policy, notes: Notes) -> Policy:
    """A policy that takes notes before it serves its queues, and again after that."""

    def policy(state: State, rng: Rng) -> Proposals:
        noted = NOTHING
        if state.pending.jobs or state.pending.accounts or state.due_memos:  # not where policies remember nothing
            noted = yield from take_notes(state, notes)
        yield from serve(state, rng)
        if state.pending.jobs or state.pending.accounts or noted is not NOTHING:
            yield from take_notes(state, notes, noted)

    return policy


def take_notes(state: State, notes: Notes, again: Noted = NOTHING) -> Generator[Plan, str | None, Noted]:
    """Take notes before and after queues are served; after, also about what was noted before (`again`). Returns what was noted.
    Costs what changed, not what is live."""
    jobs, subjects = {*state.pending.jobs, *again.jobs}, {*state.pending.accounts, *again.subjects}
    for at in sorted(state.due_memos):
        memo = state.memos.rows.get(at)
        if memo is None:
            continue  # forgotten with the others of its virtual cluster
        if not memo.job_id:
            subjects.add(at)
        elif state.order_for(job := state.jobs.rows[memo.job_id]).policy == memo.policy:
            jobs.add(job.id)
        else:
            if (parked := _parked_by_policy(state, memo.job_id)) is not None:
                yield (parked,)
            yield (Remember(*at, None),)  # the job's virtual cluster has another policy now
    for job_id in sorted(jobs):
        if (live := state.jobs.rows.get(job_id)) is not None and (plan := tuple(notes.remember(state, live))):
            yield plan
    for policy, subject in sorted(subjects):
        remembers = notes.policy_in(state, vc_of(subject)) == policy
        if plan := tuple(notes.account(state, subject) if remembers else _forget(state, policy, vc_of(subject))):
            yield plan
    return Noted(frozenset(jobs), frozenset(subjects))


def _parked_by_policy(state: State, job_id: int) -> Unpark | None:
    """Resume a job that its former policy has parked: no other would. None: it is not parked by a policy."""
    operation = operation_of(state, job_id)
    if operation is None or operation.phase is not OperationPhase.PARKED or operation.note_of(BY_USER):
        return None
    return Unpark(job_id, "the policy that parked it is not used any more")


def _order_in(state: State, vc: str) -> QueueOrder | None:
    """None: there is no such virtual cluster any more."""
    return state.vc_orders.get(vc) if vc else state.site_order


def _policy_of(order: QueueOrder | None) -> str:
    return "" if order is None else order.policy


def _forget(state: State, policy: str, vc: str) -> Iterator[Remember]:
    """Forget all that the former policy of a site or virtual cluster has remembered, except about jobs."""
    for at in sorted(at for at in state.memos.rows if at[0] == policy):
        if not state.memos.rows[at].job_id and vc_of(at[1]) == vc:
            yield Remember(*at, None)
