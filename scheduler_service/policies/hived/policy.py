"""HiveD's two layers: each virtual cluster is served in its own cells, and what is idle then goes to opportunistic work."""

import sys
from collections.abc import Generator, Iterable
from itertools import islice

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Plan, Remember, Rng, Wait
from scheduler_service.core.model import Job, JobState
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.memo import vc_of
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Owner, VirtualCluster
from scheduler_service.core.state.queue_keys import OWN_LANES, Lane, Named
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import name_within, stages_within
from scheduler_service.policies.hived import nothing_to_preempt
from scheduler_service.policies.hived.contested_earmarks import contested_vcs
from scheduler_service.policies.hived.exchange.arbiter import Match, balance_surplus
from scheduler_service.policies.hived.exchange.arbiter_and_proxies import MATCHES, arbitrate, run_proxies
from scheduler_service.policies.hived.growth_beyond_quota import more_tasks, with_more
from scheduler_service.policies.hived.guaranteed import Choice, place_on_cells_kept, plan_in_cells
from scheduler_service.policies.hived.opportunistic import place_opportunistic, promote, serve_opportunistic
from scheduler_service.policies.hived.preemption_in_vc import make_room
from scheduler_service.policies.hived.queue_membership import held_up, in_open_pools, ways, ways_in
from scheduler_service.policies.hived.slicing_in_cells import in_turns, introspect
from scheduler_service.policies.hived.vc_scope import VcScope, why_waits
from scheduler_service.policies.memo_updates import Notes, memo_updates
from scheduler_service.policies.options import Options
from scheduler_service.policies.placing.first_fit import start_on_earmarks
from scheduler_service.policies.stages import Stages

BEHIND = 128
"""Jobs that are looked at behind one that waits, for such as may have other cells. Queues in which all are held up cost
nothing."""
_ALL = sys.maxsize


def cells(match: Match | None = balance_surplus, promotes: bool = True) -> Policy:
    """The policy of HiveD. `match`: how cells are exchanged; None: as tenants agree among themselves. `promotes`: what
    overflowed becomes guaranteed where it runs, once its virtual cluster can have those cells; the paper has no such rule."""

    def policy(state: State, rng: Rng) -> Proposals:
        while True:
            yield from serve(state, rng)
            if state.introspects:
                before = len(state.journal.entries)
                yield from introspect(state)
                if len(state.journal.entries) != before:
                    yield from serve(state, rng)
            yield from run_proxies(state)
            if not (yield from arbitrate(state, match)):
                break

    def serve(state: State, rng: Rng) -> Proposals:
        if state.earmarks_of:
            yield from serve_vcs(state, contested_vcs(state), rng)
            yield from start_on_earmarks(state, place_on_cells_kept)
        yield from serve_vcs(state, _with_work(state), rng)
        while (vc := (yield from serve_opportunistic(state, rng))) is not None:
            yield from serve_vcs(state, [vc.id], rng)

    def serve_vcs(state: State, vc_ids: list[int], rng: Rng) -> Proposals:
        """Serve these virtual clusters. If one of them gives cells away, such as those of a lazy run, or is content with broken
        ones, others that were served before it may want what that leaves; if cells are missing because of faults, they may miss
        more. With what has come to be guaranteed, waiting jobs may take turns."""
        while vc_ids:
            since = len(state.journal.entries)
            for vc_id in vc_ids:
                yield from serve_guaranteed(state, state.vcs.rows[vc_id], rng, promotes)
            if not _others_may_want_more(state, since):
                return
            vc_ids = _with_work(state)

    return memo_updates(policy, NOTES)


def _remember(state: State, job: Job) -> Iterable[Remember]:
    """Notes of the policy of the job's virtual cluster about the job."""
    vc = state.vc_ids.get(job.spec.vc)
    return () if vc is None else stages_within(state.vcs.rows[vc].policy).remember(state, job)


def _account(state: State, subject: str) -> Iterable[Remember]:
    """Notes of the policy of the subject's virtual cluster about the subject."""
    vc = state.vc_ids.get(vc_of(subject))
    return () if vc is None else stages_within(state.vcs.rows[vc].policy).account(state, subject)


def _policy_in(state: State, name: str) -> str:
    """The policy of a virtual cluster; the site has none of its own."""
    vc = state.vc_ids.get(name)
    return "" if vc is None else name_within(state.vcs.rows[vc].policy)


NOTES = Notes(_remember, _account, _policy_in)
"""The notes that virtual clusters' own policies take."""


def stages(options: Options) -> Stages:
    return Stages(cells(MATCHES[options.exchange], options.promotes), find=place_opportunistic)


def _others_may_want_more(state: State, since: int) -> bool:
    """Whether what was changed since, in this step, concerns others than those that were served: more can be had, as a cell
    came free, or one was bound that is not wholly healthy, and a healthy one need not be kept for its virtual cluster any more;
    or less, as a cell was bound in a pool that cannot keep all promises; or there are more runs to take turns with."""
    assert state.pools is not None
    bound, guaranteed = set[str](), set[str]()
    for table, _, old, new in state.journal.entries[since:]:
        if table is state.bindings:
            if new is None or not _is_whole(state, new):
                return True
            bound.add(new.pool)
        elif table is state.runs and new is not None and new.guaranteed and (old is None or not old.guaranteed):
            guaranteed.add(new.vc)
    if not all(state.pools.pools[name].holds() for name in bound):
        return True
    return any(_take_turns(state, name) for name in guaranteed)


def _take_turns(state: State, name: str) -> bool:
    """Whether jobs of the virtual cluster wait that take turns with guaranteed runs, for which there are no others."""
    if not name or not any((name, lane) in state.queues for lane in OWN_LANES):
        return False
    return stages_within(state.vcs.rows[state.vc_ids[name]].policy).overload is not None


def _is_whole(state: State, binding: Binding) -> bool:
    assert state.pools is not None
    pool = state.pools.pools[binding.pool]
    leaves = pool.leaves(pool.shape.levels.index(binding.level), binding.index)
    return not any(mask & ~pool.healthy(slot) for slot, mask in leaves)


def _with_work(state: State) -> list[int]:
    """Virtual clusters with jobs that wait for cells of theirs, would rather be guaranteed, or are parked; in order of their
    ids. Those that run without a virtual cluster, from before there were any, wait for no cells."""
    names = {name for name, lane in state.queues if name and lane is not Lane.OPPORTUNISTIC}
    if state.overflowing or state.demoted or state.operation_of:
        names.update(state.overflowing, state.demoted, (state.jobs.rows[job_id].spec.vc for job_id in state.operation_of))
        names.discard("")
    return sorted([state.vc_ids[name] for name in names]) if names else []


def serve_guaranteed(state: State, vc: VirtualCluster, rng: Rng, promotes: bool) -> Proposals:
    """The virtual cluster's jobs in order, until one does not fit in its cells; it holds up those behind it that may have the
    same. If the policy chooses which jobs start, those that wait hold up runs that have overflowed, and no other job. If trials
    preempt others, they have a queue of their own, served first. Jobs that overflowed come after those that wait, and jobs that
    lost their cells before them."""
    chosen = stages_within(vc.policy)
    if chosen.put_back is not None or vc.name in state.demoted:
        yield from _go_on(state, vc, promotes)
    held: set[Choice] = set()
    if chosen.starts is not None:
        yield from chosen.starts(state, VcScope(state, vc, lambda: _give_back(state, vc, promotes)), rng)
        held = set(_first_waiting(state, vc))
    else:
        for lanes in ((Lane.TRIAL,), (Lane.BEST_EFFORT,)) if chosen.trials_first else (OWN_LANES,):
            yield from _serve(state, vc, lanes, held, rng, promotes)
    if chosen.put_back is not None or vc.name in state.demoted:
        yield from _go_on(state, vc, promotes)
    if promotes and (state.demoted or state.overflowing):
        for jobs in (state.demoted, state.overflowing):
            if vc.name in jobs:
                yield from promote(state, vc, jobs[vc.name], held)


def _go_on(state: State, vc: VirtualCluster, promotes: bool) -> Proposals:
    """Resume jobs that were parked for others, before those that they outrank, and give cells back to those that lost them."""
    if (put_back := stages_within(vc.policy).put_back) is not None:
        yield from put_back(state, vc.name, place_opportunistic)
    yield from _give_back(state, vc, promotes)


def _give_back(state: State, vc: VirtualCluster, promotes: bool) -> Proposals:
    """Give cells to the jobs that lost theirs, if they would come before all that wait."""
    if promotes and vc.name in state.demoted:
        yield from promote(state, vc, outranking(state, vc))


def outranking(state: State, vc: VirtualCluster) -> set[int]:
    """Jobs that run without the cells that they had, and would come before all that wait for such."""
    assert state.pools is not None
    first, found = _first_waiting(state, vc), set[int]()
    for job_id in state.demoted[vc.name]:
        job, position = state.jobs.rows[job_id], state.pools.positions.get(state.runs_of(job_id)[0].node)
        ahead = None if position is None else first.get(Choice(position.pool, Owner(vc.id, job.launch_spec.cells.pin)))
        if ahead is None or state.place_of(job) < ahead:
            found.add(job_id)
    return found


def _first_waiting(state: State, vc: VirtualCluster) -> dict[Choice, QueueKey]:
    """The place of the first job that waits for each. One that waits for others to leave has its cells."""
    assert state.pools is not None
    first: dict[Choice, QueueKey] = {}
    for lane in OWN_LANES:
        for named, queue in state.queues.get((vc.name, lane), {}).items():
            for key in islice(queue, BEHIND):
                job = state.jobs.rows[key[-1]]
                mine = ways_in(state.pools, vc, job, named)
                for choice in held_up(state, vc, mine) if job.id not in state.earmarks_of else ():
                    first[choice] = min(key, first.get(choice, key))
                if all(choice in first and first[choice] <= key for _, choice in mine):
                    break
    return first


def _serve(state: State, vc: VirtualCluster, lanes: tuple[Lane, ...], held: set[Choice], rng: Rng, promotes: bool) -> Proposals:
    """Serve these queues. Adds to `held` the choices for which jobs wait: those behind them get none of these. A job that waits
    for others to leave has its cells, and holds up no other."""
    assert state.pools is not None
    skipped: dict[_Queue, int] = {}
    hopeless: set[_Kind] = set()
    tried: set[int] = set()  # jobs that are in several queues
    overtakes = state.vc_orders[vc.name].overtakes
    looks = BEHIND
    while looks and (head := _head(state, vc, lanes, skipped)) is not None:
        at, job = head
        if held or overtakes:
            mine = ways_in(state.pools, vc, job, at[1])
            if mine and all(choice in held for _, choice in mine):
                skipped[at] = _ALL
                continue
            looks -= 1
            if _kind(at, job) in hopeless:
                skipped[at] += 1
                continue
        if job.id in tried or job.id in state.earmarks_of:
            skipped[at] += 1
            continue
        told = yield from _begin(state, vc, in_open_pools(state.pools, vc, job, held), rng)
        started = not _keeps_place(state, vc, at, skipped[at], job)
        if started or job.id in state.earmarks_of:
            yield from _go_on(state, vc, promotes)  # those that come before the next, and not before this one
        if started:
            continue
        if job.id not in state.earmarks_of:
            yield (told or nothing_to_preempt.for_guaranteed(state, vc, job, why_waits(state, vc, job)),)
            if not overtakes:
                held.update(held_up(state, vc, [way for way in ways(state.pools, vc, job) if way[1] not in held]))
            hopeless.add(_kind(at, job))
        skipped[at] += 1
        if job.spec.alternatives:
            tried.add(job.id)


def _begin(state: State, vc: VirtualCluster, jobs: list[Job], rng: Rng) -> Generator[Plan, str | None, Wait | None]:
    """Start a job in its virtual cluster's cells, or make others leave for it. `jobs`: the job as it is to be tried (see
    `queue_membership.in_open_pools`). Returns what it waits for, if that is not its own cells."""
    for job in jobs:
        plan = plan_in_cells(state, vc, job)
        if plan is not None:
            wider = with_more(state, job, plan, more) if (more := more_tasks(state, vc, job)) else plan
            if wider != plan and (yield wider) is None:
                return None
            return _waits(plan, (yield plan))
    overload = stages_within(vc.policy).overload
    if overload is not None:
        for job in jobs:
            plan = in_turns(state, vc, job, overload)
            if plan is not None and (yield plan) is None:
                now = state.jobs.rows[job.id]
                if now.spec.gang == job.spec.gang:
                    return None
                return (yield from _begin(state, vc, [now], rng))  # it has fewer tasks now
    for job in jobs:
        plan = make_room(state, vc, job, rng)
        if plan is not None and (wait := _waits(plan, (yield plan))) is not None:
            return wait
        if job.id in state.earmarks_of or state.jobs.rows[job.id].state is not JobState.QUEUED:
            return None
    return None


def _waits(plan: Plan, refused: str | None) -> Wait | None:
    last = plan[-1]
    return last if isinstance(last, Wait) and refused is None else None


_Queue = tuple[Lane, Named]
_Kind = tuple[Lane, int, Needs]


def _kind(at: _Queue, job: Job) -> _Kind:
    """A key of jobs that fare alike."""
    return at[0], job.priority, job.needs()


def _head(state: State, vc: VirtualCluster, lanes: tuple[Lane, ...], skipped: dict[_Queue, int]) -> tuple[_Queue, Job] | None:
    """The first job of the lanes taken together, behind those that were skipped of each queue."""
    first: tuple[QueueKey, _Queue] | None = None
    for lane in lanes:
        for named, queue in state.queues.get((vc.name, lane), {}).items():
            key = queue.key_behind(skipped.setdefault((lane, named), 0))
            if key is not None and (first is None or key < first[0]):
                first = key, (lane, named)
    return None if first is None else (first[1], state.jobs.rows[first[0][-1]])


def _keeps_place(state: State, vc: VirtualCluster, at: _Queue, skipped: int, job: Job) -> bool:
    """Whether it is where it was in its queue; an array that stays there may have begun one more of its elements."""
    key = state.queue(vc.name, *at).key_behind(skipped)
    return key is not None and key[-1] == job.id and state.jobs.rows[job.id].elements == job.elements
