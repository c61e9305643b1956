"""Rotation: jobs of a server change places, so that all get the same part of its devices in the long run (Gandiva, Figure 9).

A run keeps its devices. So of six jobs on four devices two have one alone, and four take turns on two; and of three jobs of two
devices one has two alone. From time to time, a mate of the job that has got the least so far moves to the devices whose users
have got the most, if that brings those who have got the least closer to the others. Only jobs of one task that are each other's
equals change places. If devices of the server are idle and no job waits, a job that takes turns has them at once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Migrate, Plan, Remember, Spot
from scheduler_service.core.model import Run, RunPhase
from scheduler_service.core.model.memo import shared_subject
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.values import SECOND, Mask, Micros, mask_of
from scheduler_service.core.sharing.equations import time_share
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import forget, memo_of
from scheduler_service.policies.gandiva.migration import may_move, onto_idle, under_way
from scheduler_service.policies.gandiva.share_groups import is_ours, runs_in
from scheduler_service.policies.gandiva.slicing.fair_turns import fair_turns, parts_of
from scheduler_service.policies.gandiva.slicing.mates import rank
from scheduler_service.policies.gandiva.slicing.probes import NAME
from scheduler_service.policies.gandiva.slicing.rows import units_of
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import holders, shares_with, would_do
from scheduler_service.policies.stages import Where

TRIED = 6
"""Moves of jobs of a server that are weighed at a look."""


def rotation_subject(vc: str, node: int) -> str:
    """The subject of the memo about the jobs of a server that change places."""
    return shared_subject(vc, f"rotation/{node}") if vc else f"rotation/{node}"


class _Rotation(NamedTuple):
    """The memo about the rotation on a server. Times are in microseconds."""

    moved_us: Micros
    """When a job changed its place last."""
    seen_us: Micros
    got: dict[int, int]
    """For each job, how long it has executed until `seen_us`, since the jobs of the server get different parts."""


class _Turn(NamedTuple):
    """The part of its devices that a job has."""

    run: Run
    share: Fraction
    mates: tuple[Run, ...]
    """The others on these devices."""


def rotate(state: State, where: Where, nodes: range, settings: Settings) -> Proposals:
    """Let at most one job of each of these servers change its place."""
    clock, vc = state.cluster.clock_us, where.vc
    waiting = any(state.queue(vc, lane).first is not None for lane in OWN_LANES)
    for node in nodes:
        subject, equals = rotation_subject(vc, node), _equals(state, vc, node)
        memo = memo_of(state, subject)
        got = {} if memo is None else _read_rotation(memo.value).got
        plan = None if waiting or under_way(state, node) else _onto_idle(state, where, node, equals, got, settings)
        if plan is not None and would_do(state, plan) and (yield plan) is None:
            continue
        differ = any(_differ(turns) for turns in equals)
        if not (differ or any(_idles(turns) for turns in equals)):
            if memo is not None and not under_way(state, node):
                yield (forget(subject),)
            continue
        rotation = _Rotation(clock, clock, {}) if memo is None else _read_rotation(memo.value)
        rotation = _count_turns(state, node, rotation, [turn for turns in equals for turn in turns.values()])
        moved = False
        if clock - rotation.moved_us >= _stay_us(state, equals, settings) and not under_way(state, node):
            for plan in _changes(state, vc, equals, rotation.got, settings):
                whole = (*plan, _remember_rotation(subject, rotation._replace(moved_us=clock)))
                if would_do(state, whole) and (yield whole) is None:
                    moved = True
                    break
        if not moved:
            yield (_remember_rotation(subject, rotation),)


def _equals(state: State, vc: str, node: int) -> list[dict[int, _Turn]]:
    """The jobs of a server that may change places, by those that are equal in class and priority."""
    found: dict[tuple[int, int], dict[int, _Turn]] = defaultdict(dict)
    movable: dict[int, bool] = {}
    for key in sorted(state.runs_on.get(node, ())):
        run = state.runs.rows[key]
        if not _could_move(state, run, vc):
            continue
        group, equal = state.share_groups.rows.get(run.group), rank(state.jobs.rows[key.job_id])
        if group is None:
            found[equal][run.job_id] = _Turn(run, Fraction(1), ())
        elif movable.setdefault(group.id, _in_turns(state, group, vc)):
            used = set(run.devices)
            others = (state.runs.rows[other] for other in group.members() if other != key)
            mates = tuple(other for other in others if used.intersection(other.devices))
            found[equal][run.job_id] = _Turn(run, time_share(group.rows, key), mates)
    return [found[equal] for equal in sorted(found)]


def _could_move(state: State, run: Run, vc: str) -> bool:
    spec = state.jobs.rows[run.job_id].spec
    if run.phase is not RunPhase.RUNNING or not run.given or spec.gang or spec.shares:
        return False
    return run.vc == vc and run.guaranteed is bool(vc)


def _in_turns(state: State, group: ShareGroup, vc: str) -> bool:
    """Whether all members are equals that could change places, on one server, and none is packed."""
    if not is_ours(state, group, vc) or len(group.devices) > 1 or not all(row.weight for row in group.rows):
        return False
    runs = runs_in(state, group)
    ranks = {rank(state.jobs.rows[key.job_id]) for key in runs}
    apart = all(len(unit.runs) == 1 for unit in units_of(group.rows, runs))
    return len(ranks) == 1 and apart and all(_could_move(state, run, vc) for run in runs.values())


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


def _idles(turns: Mapping[int, _Turn]) -> bool:
    """Whether a device is idle some of the time, though its users take turns with others: they want other devices, too."""
    used: dict[int, Fraction] = defaultdict(Fraction)
    for turn in turns.values():
        for index in turn.run.devices:
            used[index] += turn.share
    return any(part < 1 for part in used.values())


def _count_turns(state: State, node: int, rotation: _Rotation, turns: Sequence[_Turn]) -> _Rotation:
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
    stay = _stay_us(state, equals, settings)
    stays = settings._replace(move_pause=stay / SECOND)
    for turns in equals:
        tried = 0
        for needs in sorted(turns.values(), key=lambda turn: (got[turn.run.job_id], turn.run.key)):
            for mover in sorted(needs.mates, key=lambda run: (-got[run.job_id], run.key)):
                if tried >= TRIED or not may_move(state, vc, state.jobs.rows[mover.job_id], stays):
                    continue
                tried += 1
                for devices in _destinations(turns, mover, needs, got):
                    if devices != mover.devices and _helps(turns, mover, devices, got, stay):
                        yield from _moves(state, mover, needs, devices, settings)


def _destinations(turns: Mapping[int, _Turn], mover: Run, needs: _Turn, got: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
    """As many devices as the mover has: those whose users have got the most, if these have got more than the job in need and
    have longer turns; and those that are used the least without the mover, if they are idle some of the time."""
    users: dict[int, list[_Turn]] = defaultdict(list)
    for turn in turns.values():
        for index in turn.run.devices:
            users[index] += [turn] if turn.run.key != mover.key else []
    count, mine = len(mover.devices), got[needs.run.job_id]
    least = {index: min((got[turn.run.job_id] for turn in on), default=0) for index, on in users.items()}
    more = [i for i, on in users.items() if least[i] > mine and all(turn.share > needs.share for turn in on)]
    used = {index: sum(turn.share for turn in on) for index, on in users.items()}
    for able, order in ((more, [(-least[i], i) for i in more]), (list(users), [(used[i], i) for i in users])):
        if len(able) >= count:
            yield tuple(sorted(index for _, index in sorted(order)[:count]))


def _helps(turns: Mapping[int, _Turn], mover: Run, devices: Sequence[int], got: Mapping[int, int], stay_us: Micros) -> bool:
    """Whether those who will have got the least after the next stay have more if the mover is on these devices."""

    def parts_then(moved: Mapping[int, Mask]) -> list[int]:
        wants = tuple(moved.get(job_id, mask_of(turns[job_id].run.devices)) for job_id in order)
        parts = parts_of(fair_turns(wants), len(wants))
        return sorted(got[job_id] + round(part * stay_us) for job_id, part in zip(order, parts, strict=True))

    order = sorted(turns)
    return parts_then({mover.job_id: mask_of(tuple(devices))}) > parts_then({})


def _moves(state: State, mover: Run, needs: _Turn, devices: tuple[int, ...], settings: Settings) -> Iterator[Plan]:
    job, spots = state.jobs.rows[mover.job_id], (Spot(mover.node, devices),)
    others = holders(state, spots)
    hosts = sorted({run.job_id for run in others if set(devices).intersection(run.devices)})
    left = ", ".join(str(index) for index in needs.run.devices if index in mover.devices)
    plural = "s" if len(left) > 1 else ""
    least, more = f"job {needs.run.job_id}, which has got the least of its server", " and ".join(map(str, hosts))
    has = "job " + more + (", which has got more" if len(hosts) == 1 else ", which have got more")
    why = f"it leaves device{plural} {left} to {least}, and takes turns with {has}"
    for share in shares_with(state, job, spots, others, settings):
        yield (Migrate(job.id, spots, why, mover.guaranteed, share),)


def _remember_rotation(subject: str, rotation: _Rotation) -> Remember:
    flat = tuple(part for job_id in sorted(rotation.got) for part in (job_id, rotation.got[job_id]))
    return Remember(NAME, subject, (rotation.moved_us, rotation.seen_us, *flat))


def _read_rotation(value: tuple[int | str, ...]) -> _Rotation:
    moved, seen, *flat = map(int, value)
    return _Rotation(moved, seen, dict(zip(flat[::2], flat[1::2], strict=True)))
