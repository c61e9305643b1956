"""Gandiva as a policy: a job that finds no idle devices takes turns with others, and introspection makes the best of it.

A job without room first takes the place of jobs that it outranks, which are moved or parked. If there are none, it takes turns
with its equals. A trial that can do neither has best-effort runs preempted, as in FitGpp. On a site, trials are served first,
and then the others in the order of their queue. One that can do none of this holds up those behind it.
"""

from collections.abc import Generator, Iterable
from functools import partial

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Plan, Remember, Resize, Rng, Wait
from scheduler_service.core.model import Job, JobClass, JobState, Reason
from scheduler_service.core.state.queue_keys import Lane, own_lane
from scheduler_service.core.state.queue_order import QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp import policy as fitgpp
from scheduler_service.policies.gandiva.growing import as_before, retreat, shrink_for, shrink_in
from scheduler_service.policies.gandiva.introspection_rounds import look_at_servers
from scheduler_service.policies.gandiva.memos import forget
from scheduler_service.policies.gandiva.park_lower_priority import comes_free_soon, displace, leave_alone, put_back
from scheduler_service.policies.gandiva.share_groups import rearrange
from scheduler_service.policies.gandiva.slicing.mates import Mates, outranked_slots
from scheduler_service.policies.gandiva.slicing.probes import NAME
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import take_turns, why_no_turn
from scheduler_service.policies.memo_updates import Notes, memo_updates
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.placing.by_affinity import place_by_affinity
from scheduler_service.policies.placing.first_fit import leaves_queue, no_room, place_on_earmarks, start_on_earmarks
from scheduler_service.policies.queueing.in_order import head_of
from scheduler_service.policies.queueing.jobs_behind import serve_behind
from scheduler_service.policies.queueing.precedence import Precedence
from scheduler_service.policies.queueing.trials_first import in_vain
from scheduler_service.policies.stages import Introspect, Overload, Stages, Victims, Where

ORDER = QueueOrder(policy=NAME, introspects=True, rearranges=True)


def _plan_here(state: State, job: Job) -> Plan | None:
    place = place_by_affinity(state, job)
    return None if place is None else (place,)


HERE = Where(plan=_plan_here)
"""A whole site."""
_NO_ROOM = (Reason.NO_ROOM, Reason.NOTHING_TO_PREEMPT)
"""Why the first of a queue waits that was looked at."""


def _place_of_turns(state: State, job: Job) -> Where:
    """The place where a job without room could take turns: in a virtual cluster, among its guaranteed runs."""
    if not job.spec.vc:
        return Where()
    nodes = sorted({state.runs.rows[key].node for key in state.guaranteed_runs.get(job.spec.vc, ())})
    return Where(job.spec.vc, True, nodes)


def first_waiting(state: State, skipped: dict[Lane, int]) -> Job | None:
    """The first trial, or else the first of the others."""
    lanes = (Lane.TRIAL, Lane.BEST_EFFORT)
    return next((job for lane in lanes if (job := head_of(state, {lane: skipped[lane]})) is not None), None)


def serve(state: State, overload: Overload, victims: Victims | None, settings: Settings, rng: Rng) -> Proposals:
    """The queues of a site."""
    yield from start_on_earmarks(state, place_on_earmarks)
    skipped = {Lane.TRIAL: 0, Lane.BEST_EFFORT: 0}
    yield from put_back(state, "", place_by_affinity)
    while (job := first_waiting(state, skipped)) is not None:
        if (plan := place_by_affinity(state, job)) is not None:
            if (yield (plan,)) is not None:
                skipped[own_lane(job)] += 1
            else:
                yield from put_back(state, "", place_by_affinity)
            continue
        if job.id in state.earmarks_of:
            skipped[own_lane(job)] += 1
            continue
        wait = no_room(state, job)
        if leaves_queue(wait):
            skipped[own_lane(job)] += (yield (wait,)) is not None  # else it has left the queue
            continue
        shrinking = shrink_for(state, "", job) if settings.growth else None
        if shrinking is not None:
            yield (*shrinking, wait)
            yield from serve_others(state, job, overload, victims, rng)
            return
        sliced = overload(state, job, HERE)
        if sliced is not None and (yield sliced) is None:
            if any(isinstance(action, Place) or (isinstance(action, Resize) and action.job_id == job.id) for action in sliced):
                continue
        elif victims is not None and job.spec.job_class is JobClass.TRIAL:
            preempted = victims.choose(state, job, rng)
            if preempted is None:
                wait = in_vain(state, job, victims.cap)
            elif (yield (*preempted, Wait(job.id, Reason.WAITING_FOR_VICTIMS))) is None:
                continue  # it has an earmark, and holds up no other job
        yield (wait,)
        yield from serve_others(state, job, overload, victims, rng)
        return


def serve_others(state: State, waits: Job, overload: Overload, victims: Victims | None, rng: Rng) -> Proposals:
    """Jobs behind one that waits start, or take turns, where they do not delay it."""

    def make_room(state: State, job: Job, before: Precedence) -> Generator[Plan, str | None, Wait | None]:
        if not before.reaches_beyond(state, job):
            return no_room(state, job)
        with state.free_resources.keeping(before.kept_elsewhere()):
            sliced = overload(state, job, HERE)
        if sliced and (yield sliced) is None:
            return None if state.jobs.rows[job.id].state is not JobState.QUEUED else no_room(state, job)
        if sliced is None and victims is not None and job.spec.job_class is JobClass.TRIAL:
            with state.free_resources.keeping(before.kept_elsewhere()):
                preempted = victims.choose(state, job, rng)
            if preempted is None and not before.covers(state, job):
                return in_vain(state, job, victims.cap)
            if preempted is not None and (yield (*preempted, Wait(job.id, Reason.WAITING_FOR_VICTIMS))) is None:
                return None
        return no_room(state, job)

    before = Precedence(place_by_affinity, joins=True)
    before.add(state, waits)
    for lane in (Lane.TRIAL, Lane.BEST_EFFORT):
        yield from serve_behind(state, (lane,), before, make_room)


def overload_stage(settings: Settings) -> Overload:
    """The stage for a job without room, before any job is preempted."""
    lower, equals = Mates.OUTRANKED, Mates.EQUALS

    def overload(state: State, job: Job, where: Where) -> Plan | None:
        plan = as_before(state, job, where)
        if plan is None and where.vc and settings.growth:
            plan = shrink_in(state, job, where)
        if plan is None:
            plan = in_place_or_turns(state, job, where)
        if plan is None and where.vc:
            plan = retreat(state, job, where, lambda: in_place_or_turns(state, job, where))
        return plan

    def in_place_or_turns(state: State, job: Job, where: Where) -> Plan | None:
        """Jobs that it outranks run alone, take turns, or both: it has their devices in any case. Else it takes turns with its
        equals."""
        if not (state.operation_of or outranked_slots(state, job).any()):
            return take_turns(state, job, where, settings, equals)
        plan = displace(state, job, where, settings, where.plan) if where.plan is not None else None
        for mates in (lower, equals, lower | equals) if plan is None else ():
            room = partial(take_turns, where=where, settings=settings, mates=mates)
            plan = room(state, job)
            if plan is None and Mates.OUTRANKED in mates:
                plan = displace(state, job, where, settings, room)
            if plan is not None:
                return plan
        waits = plan is None and job.spec.job_class is JobClass.TRIAL and comes_free_soon(state, job, where)
        return () if waits else plan

    return overload


def introspecting(settings: Settings) -> Introspect:
    """The stage."""

    def introspect(state: State, where: Where) -> Proposals:
        yield from rearrange(state, where.vc)
        yield from look_at_servers(state, where, settings)

    return introspect


def account(_state: State, subject: str) -> Iterable[Remember]:
    """Verdicts about pairs of kinds are forgotten when they are old. Rounds are due for `look_at_servers`."""
    _, _, what = subject.partition("/")
    return (forget(subject),) if what.startswith("pair/") else ()


def stages(options: Options) -> Stages:
    """The stages of the policy. Raises ValueError for a setting that is out of range."""
    settings = own_settings(Settings, options.own)
    settings.check()
    overload, introspect = overload_stage(settings), introspecting(settings)
    victims: Victims | None = fitgpp.stages(options).victims if settings.preempting else None

    def policy(state: State, rng: Rng) -> Proposals:
        first = first_waiting(state, {Lane.TRIAL: 0, Lane.BEST_EFFORT: 0})
        if state.pending.policies or first is None or first.reason not in _NO_ROOM:
            yield from serve(state, overload, victims, settings, rng)
        else:
            yield from serve_others(state, first, overload, victims, rng)
        before = len(state.journal.entries)
        yield from introspect(state, HERE)
        if len(state.journal.entries) != before:
            yield from serve(state, overload, victims, settings, rng)  # waiting jobs may take turns with others now
            yield from rearrange(state, "")

    return Stages(
        memo_updates(policy, Notes(remember=leave_alone, account=account)),
        ORDER._replace(measured_us=min(settings.period_us, ORDER.measured_us)),
        victims=victims,
        trials_first=True,
        remember=leave_alone,
        account=account,
        about=lambda state, job: why_no_turn(state, job, _place_of_turns(state, job), settings),
        overload=overload,
        put_back=put_back,
        find=place_by_affinity,
        introspect=introspect,
    )
