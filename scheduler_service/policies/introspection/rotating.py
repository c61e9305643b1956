"""Rotation: jobs of a server change places, so that all get the same part of its devices in the long run (Gandiva, Figure 9).

A run keeps its devices. So of six jobs on four devices two have one alone, and four take turns on two. Every so often, the mate
of the job that has got the least so far moves to a device of which the holder has got more: the mate leaves the former alone,
and takes turns with the latter. Only jobs with one device that are each other's equals change places. If a device of the server
is idle and no job waits, a job that takes turns has it at once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Migrate, Plan, Remember, Spot
from scheduler_service.core.model import Run, RunPhase
from scheduler_service.core.model.memo import shared
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.sharing.equations import time_share
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.introspection.groups import is_ours
from scheduler_service.policies.introspection.memos import forget, memo_of
from scheduler_service.policies.introspection.moving import may_move, onto_idle, under_way
from scheduler_service.policies.overload.mates import rank
from scheduler_service.policies.overload.probes import NAME
from scheduler_service.policies.overload.settings import Settings
from scheduler_service.policies.overload.slicing import shares_with, would_do
from scheduler_service.policies.stages import Where


def rotation_subject(vc: str, node: int) -> str:
    """Of the memo about the jobs of a server that change places."""
    return shared(vc, f"rotation/{node}") if vc else f"rotation/{node}"


class _Rotation(NamedTuple):
    """Of a server. In microseconds."""

    moved_us: Micros
    """When a job changed its place last."""
    seen_us: Micros
    got: dict[int, int]
    """By job: how long it has executed until `seen_us`, since the jobs of the server get different parts."""


class _Turn(NamedTuple):
    """What a job has of its device."""

    run: Run
    share: Fraction
    mates: tuple[Run, ...]
    """The others on the device."""


def rotate(state: State, where: Where, nodes: range, settings: Settings) -> Proposals:
    """Has at most one job of each of these servers change its place."""
    clock, vc = state.cluster.clock_us, where.vc
    waiting = any(state.queue(vc, lane).first is not None for lane in OWN_LANES)
    for node in nodes:
        subject, equals = rotation_subject(vc, node), _equals(state, vc, node)
        memo = memo_of(state, subject)
        got = {} if memo is None else _read(memo.value).got
        plan = None if waiting or under_way(state, node) else _onto_idle(state, where, node, equals, got, settings)
        if plan is not None and would_do(state, plan) and (yield plan) is None:
            continue
        if not any(_differ(turns) for turns in equals):
            if memo is not None and not under_way(state, node):
                yield (forget(subject),)
            continue
        rotation = _Rotation(clock, clock, {}) if memo is None else _read(memo.value)
        rotation = _counted(state, node, rotation, [turn for turns in equals for turn in turns.values()])
        if clock - rotation.moved_us >= _stay_us(state, equals, settings) and not under_way(state, node):
            for plan in _changes(state, vc, equals, rotation.got, settings):
                whole = (*plan, _noted(subject, rotation._replace(moved_us=clock)))
                if would_do(state, whole):
                    yield whole
                    break
            else:
                yield (_noted(subject, rotation),)
        else:
            yield (_noted(subject, rotation),)


def _equals(state: State, vc: str, node: int) -> list[dict[int, _Turn]]:
    """The jobs of a server that may change places, by those that are equal in class and priority."""
    found: dict[tuple[int, int], dict[int, _Turn]] = defaultdict(dict)
    for key in sorted(state.runs_on.get(node, ())):
        run, job = state.runs.rows[key], state.jobs.rows[key.job_id]
        if run.phase is not RunPhase.RUNNING or len(run.given) != 1 or job.spec.gang or job.spec.shares:
            continue
        if run.vc != vc or run.guaranteed is not bool(vc):
            continue
        group = state.share_groups.rows.get(run.group)
        if group is None:
            found[rank(job)][job.id] = _Turn(run, Fraction(1), ())
        elif is_ours(state, group, vc) and len(group.rows) == len(group.members()) and group.devices == ((node, run.devices),):
            mates = tuple(state.runs.rows[other] for other in group.members() if other != key)
            found[rank(job)][job.id] = _Turn(run, time_share(group.rows, key), mates)
    return [found[equal] for equal in sorted(found)]


def _onto_idle(
    state: State, where: Where, node: int, equals: Sequence[Mapping[int, _Turn]], got: Mapping[int, int], settings: Settings
) -> Plan | None:
    """The job that takes turns and has got the least has an idle device of the server to itself. In a virtual cluster,
    the device is in its own cells."""
    if not state.idle_devices.get(node, 0):
        return None
    shared = [turn.run for turns in equals for turn in turns.values() if turn.mates]
    for run in sorted(shared, key=lambda run: (got.get(run.job_id, 0), run.key)):
        job = state.jobs.rows[run.job_id]
        if may_move(state, where.vc, job, settings._replace(move_pause=settings.period)):
            why = f"a device of {state.nodes.rows[node].name} is idle, and it takes turns there"
            return onto_idle(state, where, job, [run], node, why)
    return None


def _stay_us(state: State, equals: Sequence[Mapping[int, _Turn]], settings: Settings) -> Micros:
    """How long all jobs of the server stay before one changes its place: `rotate`, and the longest cycle of their turns. Else a
    job could move before each of its turns."""
    groups = {turn.run.group for turns in equals for turn in turns.values() if turn.run.group}
    return max([round(settings.rotate * SECOND), *(state.share_groups.rows[number].cycle_us for number in groups)])


def _differ(turns: Mapping[int, _Turn]) -> bool:
    return len({turn.share for turn in turns.values()}) > 1


def _counted(state: State, node: int, rotation: _Rotation, turns: Sequence[_Turn]) -> _Rotation:
    """With what jobs have got since they were seen last. A job that is new has got what the others have on average."""
    clock, here = state.cluster.clock_us, {key.job_id for key in state.runs_on.get(node, ())}
    got = {job_id: us for job_id, us in rotation.got.items() if job_id in here}
    mean = sum(got.values()) // len(got) if got else 0
    for turn in turns:
        job_id = turn.run.job_id
        got[job_id] = got.get(job_id, mean) + int(turn.share * (clock - rotation.seen_us))
    return rotation._replace(seen_us=clock, got=got)


def _changes(
    state: State, vc: str, equals: Sequence[Mapping[int, _Turn]], got: Mapping[int, int], settings: Settings
) -> Iterator[Plan]:
    """Moves that would help, the most needed first."""
    stays = settings._replace(move_pause=_stay_us(state, equals, settings) / SECOND)
    for turns in equals:
        by_need = sorted(turns.values(), key=lambda turn: (got[turn.run.job_id], turn.run.key))
        for needs in by_need:
            movers = sorted((mate for mate in needs.mates if mate.job_id in turns), key=lambda run: -got[run.job_id])
            for host in reversed(by_need):
                if host.share <= needs.share or got[host.run.job_id] <= got[needs.run.job_id]:
                    continue
                for mover in movers:
                    if may_move(state, vc, state.jobs.rows[mover.job_id], stays):
                        yield from _moves(state, mover, needs, host, settings)


def _moves(state: State, mover: Run, needs: _Turn, host: _Turn, settings: Settings) -> Iterator[Plan]:
    job, spot = state.jobs.rows[mover.job_id], Spot(mover.node, host.run.devices)
    least, more = f"job {needs.run.job_id}, which has got the least of its server", f"job {host.run.job_id}, which has got more"
    why = f"it leaves device {needs.run.devices[0]} to {least}, and takes turns with {more}"
    for share in shares_with(state, job, (spot,), (host.run, *host.mates), settings):
        yield (Migrate(job.id, (spot,), why, mover.guaranteed, share),)


def _noted(subject: str, rotation: _Rotation) -> Remember:
    flat = tuple(part for job_id in sorted(rotation.got) for part in (job_id, rotation.got[job_id]))
    return Remember(NAME, subject, (rotation.moved_us, rotation.seen_us, *flat))


def _read(value: tuple[int | str, ...]) -> _Rotation:
    moved, seen, *flat = map(int, value)
    return _Rotation(moved, seen, dict(zip(flat[::2], flat[1::2], strict=True)))
