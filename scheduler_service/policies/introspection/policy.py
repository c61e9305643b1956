"""Gandiva as a policy: a job that finds no idle devices takes turns with others, and introspection makes the best of it.

On a site, jobs are served in the order of their queue. One that can neither start nor take turns holds up those behind it.
"""

from collections.abc import Iterable

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Remember, Rng
from scheduler_service.core.model import Reason
from scheduler_service.core.state.queue_keys import OWN_LANES, own_lane
from scheduler_service.core.state.queue_order import QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.introspection.growing import shrink_for
from scheduler_service.policies.introspection.memos import forget
from scheduler_service.policies.introspection.rearranging import rearrange
from scheduler_service.policies.introspection.rounds import look
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.order.fifo import head_of
from scheduler_service.policies.overload.settings import Settings
from scheduler_service.policies.overload.slicing import NAME, slicing, why_no_turn
from scheduler_service.policies.placing.by_affinity import place_by_affinity
from scheduler_service.policies.placing.first_fit import no_room, place_on_earmarks, start_on_earmarks
from scheduler_service.policies.remembering import Notes, noting
from scheduler_service.policies.stages import Introspect, Overload, Stages, Where

ORDER = QueueOrder(policy=NAME, introspects=True)


def serve(state: State, overload: Overload, settings: Settings) -> Proposals:
    """The queue of a site."""
    yield from start_on_earmarks(state, place_on_earmarks)
    skipped = dict.fromkeys(OWN_LANES, 0)
    while (job := head_of(state, skipped)) is not None:
        plan = place_by_affinity(state, job)
        if plan is not None:
            if (yield (plan,)) is not None:
                skipped[own_lane(job)] += 1
            continue
        wait = no_room(state, job)
        if wait.reason is Reason.TOO_LARGE:
            skipped[own_lane(job)] += (yield (wait,)) is not None  # else it has left the queue
            continue
        shrinking = shrink_for(state, "", job) if settings.growth else None
        if shrinking is not None:
            yield (*shrinking, wait)
            return
        sliced = overload(state, job, Where())
        if sliced is None or (yield sliced) is not None:
            yield (wait,)
            return


def introspecting(settings: Settings) -> Introspect:
    """The stage."""

    def introspect(state: State, vc: str) -> Proposals:
        yield from rearrange(state, vc)
        yield from look(state, vc, settings)

    return introspect


def account(_state: State, subject: str) -> Iterable[Remember]:
    """Verdicts about pairs of kinds are forgotten when they are old. Rounds are due for `look`."""
    _, _, what = subject.partition("/")
    return (forget(subject),) if what.startswith("pair/") else ()


def stages(options: Options) -> Stages:
    """Raises ValueError for settings that cannot be."""
    settings = own_settings(Settings, options.own)
    settings.check()
    overload, introspect = slicing(settings), introspecting(settings)

    def policy(state: State, _rng: Rng) -> Proposals:
        first = head_of(state, dict.fromkeys(OWN_LANES, 0))
        if state.unsettled or first is None or first.reason is not Reason.NO_ROOM:
            yield from serve(state, overload, settings)
        before = len(state.journal.entries)
        yield from introspect(state, "")
        if len(state.journal.entries) != before:
            yield from serve(state, overload, settings)  # who waits may take turns with others now
            yield from rearrange(state, "")

    return Stages(
        noting(policy, Notes(account=account)),
        ORDER,
        account=account,
        about=lambda state, job: why_no_turn(state, job, Where(), settings),
        overload=overload,
        introspect=introspect,
    )
