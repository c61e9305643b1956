"""Moves for packing: a job goes to the devices of another job of its server, to be packed with it (Gandiva, section 4.2.2).

All units of a server are in one order: pairs of kinds that have paid, then the lowest utilization. Where the next pair shares
its devices already, it is packed there (`packing`). Else one of the two takes turns with the other one, on the devices of the
other one; since it is the next pair there, too, it is packed when it has arrived. If that does not pay, the rows there are as
before, and the next pair is sought: the next GPU. If it pays, the next job is.

No job moves unless another gains by it: those who took turns with the job have longer turns, or its devices are for one that
takes turns or waits. A job moves to the same one once, unless that paid, and has to have stayed for `move_pause`. Share groups
of both are left alone until it has arrived, so they are not packed otherwise meanwhile.
"""

from collections.abc import Generator, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from scheduler_service.core.messages import Migrate, Plan, Remember, Spot
from scheduler_service.core.model import Run
from scheduler_service.core.sharing.equations import time_share
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import Round, memo_of
from scheduler_service.policies.gandiva.migration import first_waiting, may_move, moved_subject, name_of, under_way
from scheduler_service.policies.gandiva.packing import learnt_verdict, may_pack, utilisation_of
from scheduler_service.policies.gandiva.pairing import may_be_worth_a_move, next_pair
from scheduler_service.policies.gandiva.share_groups import is_ours, runs_in
from scheduler_service.policies.gandiva.slicing.mates import may_share
from scheduler_service.policies.gandiva.slicing.probes import NAME
from scheduler_service.policies.gandiva.slicing.rows import Unit, unit_of, units_of
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import holders, join_launch, shares_of, shares_with, would_do
from scheduler_service.policies.stages import Where

_PPM = 1_000_000
_ALONE = Fraction(1)
_TRIED = 8
"""Pairs of a server that are tried at a look, if the first cannot come together."""


class _Candidate(NamedTuple):
    """As `pairing.Candidate`."""

    utilisation_ppm: int
    jobs: tuple[int, ...]
    unit: Unit
    group: int
    """0: it has its devices alone."""
    share: Fraction
    """The part of the time in which it has its devices."""


def met_subject(job_id: int) -> str:
    """The subject of the memo that says to which jobs this one has moved to be packed with them."""
    return f"met/{job_id}"


def move_to_pack(state: State, vc: str, nodes: range, now: Round, settings: Settings) -> Generator[Plan, str | None, Round]:
    """Move at most one job of each of these servers. Returns the round with what is left of its hour."""
    now = now.with_hour_at(state.cluster.clock_us)
    for node in nodes:
        if 2 * now.moves >= settings.moves_per_hour:
            break  # half of the moves of an hour are left to those who have idle devices to themselves then
        if not _is_overloaded(state, vc, node) or under_way(state, node):
            continue
        for plan in _wanted_moves(state, vc, node, settings):
            if would_do(state, plan) and (yield plan) is None:
                now = now._replace(moves=now.moves + 1)
                break
    return now


def _is_overloaded(state: State, vc: str, node: int) -> bool:
    """Whether jobs take turns on the server, or wait for devices."""
    groups = (state.share_groups.rows[number] for number in state.groups_on.get(node, ()))
    return any(len(group.rows) > 1 and group.vc == vc for group in groups) or any(first_waiting(state, vc))


# ---- who is there ------------------------------------------------------------------------------------------------------


def _candidates(state: State, vc: str, node: int) -> list[_Candidate]:
    """The units of the server that have been measured alone."""
    found, guaranteed = list[_Candidate](), bool(vc)
    for number in sorted(state.groups_on.get(node, ())):
        group = state.share_groups.rows[number]
        alike = group.guaranteed is guaranteed and all(row.weight for row in group.rows) and len(group.devices) == 1
        if not alike or not is_ours(state, group, vc):
            continue
        for unit in units_of(group.rows, runs_in(state, group)):
            if (used := utilisation_of(state, unit)) is not None:
                found.append(_Candidate(used, unit.jobs, unit, number, time_share(group.rows, unit.runs[0])))
    for job_id in sorted({key.job_id for key in state.runs_on.get(node, ())}):
        runs = state.runs_of(job_id)
        if not all(_has_alone(run, node, vc) for run in runs):
            continue
        unit = unit_of(runs)
        if runs and (used := utilisation_of(state, unit)) is not None:
            found.append(_Candidate(used, unit.jobs, unit, 0, _ALONE))
    return found


def _has_alone(run: Run, node: int, vc: str) -> bool:
    return bool(run.given) and not run.group and (run.node, run.vc, run.guaranteed) == (node, vc, bool(vc))


# ---- who moves ---------------------------------------------------------------------------------------------------------


class _Server(NamedTuple):
    """Facts that decide which jobs of a server move."""

    able: frozenset[tuple[int, ...]]
    """The units that may move now, by their jobs."""
    takers: tuple[_Candidate, ...]
    """Units that take turns, and may move to devices that are left idle."""
    asked: int
    """Devices for which a job waits; 0: none."""


def _server(state: State, vc: str, units: Sequence[_Candidate], settings: Settings) -> _Server:
    single = [unit for unit in units if len(unit.unit.runs) == 1 and not state.jobs.rows[unit.jobs[0]].spec.gang]

    def may_move_unit(unit: _Candidate, pause: float) -> bool:
        return may_move(state, vc, state.jobs.rows[unit.jobs[0]], settings._replace(move_pause=pause))

    able = frozenset(unit.jobs for unit in single if may_move_unit(unit, settings.move_pause))
    turns = (unit for unit in single if unit.share < 1)
    rotates = settings.period if settings.rotate else settings.move_pause
    takers = (unit for unit in turns if may_move_unit(unit, rotates if len(unit.unit.devices) == 1 else settings.move_pause))
    asked = [max(task.devices for task in job.spec.tasks()) for job in first_waiting(state, vc)]
    return _Server(able, tuple(takers), min((devices for devices in asked if devices), default=0))


def _wanted_moves(state: State, vc: str, node: int, settings: Settings) -> Iterator[Plan]:
    """Moves by which the next pairs of the server come together, as long as the one before cannot be made. A few are tried.
    Share groups in which a pair comes first that needs no move are left to that pair."""
    left, refused = _candidates(state, vc, node), set[tuple[int, ...]]()
    server = _server(state, vc, left, settings)

    def known_pair(one: _Candidate, other: _Candidate) -> tuple[bool, int] | None:
        seen = may_pack(state, vc, one.unit, other.unit)
        if one.unit.devices == other.unit.devices:
            return seen
        possible = (
            may_be_worth_a_move(one, other, seen)
            and len(one.unit.devices) == len(other.unit.devices)
            and one.unit.devices.isdisjoint(other.unit.devices)
            and (*one.jobs, *other.jobs) not in refused
            and any(_may_go(state, server, *way, seen) for way in _ways(one, other))
        )
        return seen if possible else (False, 0)

    while server.able and len(refused) < _TRIED and (pair := next_pair(left, known_pair, settings.packed_most)) is not None:
        one, other = pair
        if one.unit.devices == other.unit.devices:
            left = [each for each in left if each.group != one.group]
            continue
        seen = learnt_verdict(state, vc, one.jobs, other.jobs)
        for mover, host in _ways(one, other):
            if _may_go(state, server, mover, host, seen):
                yield from _moves(state, node, mover, host, settings)
        refused.add((*one.jobs, *other.jobs))


def _ways(one: _Candidate, other: _Candidate) -> list[tuple[_Candidate, _Candidate]]:
    """Who moves to whom. The one that has less of its devices goes first: those who take turns with it have longer turns at
    once, and one that has its devices alone keeps them."""
    mover, host = sorted((one, other), key=lambda each: (each.share, each.utilisation_ppm, each.jobs))
    return [(mover, host), (host, mover)]


def _may_go(state: State, server: _Server, mover: _Candidate, host: _Candidate, seen: tuple[bool, int] | None) -> bool:
    """One that takes turns moves to one that has no less of its devices. `seen`: what was learnt of the pair."""
    if mover.jobs not in server.able or (mover.group and mover.share > host.share):
        return False
    memo = memo_of(state, met_subject(mover.jobs[0]))
    if memo is not None and not (seen is not None and seen[0]) and not set(memo.value).isdisjoint(host.jobs):
        return False
    if mover.group:
        return mover.share < 1
    devices = len(mover.unit.devices)
    others = (each for each in server.takers if each.jobs not in (mover.jobs, host.jobs))
    return 0 < server.asked <= devices or any(len(each.unit.devices) <= devices for each in others)


def _moves(state: State, node: int, mover: _Candidate, host: _Candidate, settings: Settings) -> Iterator[Plan]:
    """To take turns on the host's devices; none if the two could not be packed there."""
    row, run = state.jobs.rows[mover.jobs[0]], state.runs.rows[mover.unit.runs[0]]
    job, spots = row.in_configuration(row.configuration), (Spot(node, tuple(sorted(index for _, index in host.unit.devices))),)
    others, where = holders(state, spots), Where(vc=run.vc, guaranteed=run.guaranteed)
    if not all(may_share(state, other, job, where) for other in others):
        return
    there = join_launch(state, job, spots, others)
    both = sorted({*there.own.runs, *host.unit.runs})
    pack = unit_of(there.runs[key] for key in both)
    packed = [*(unit for unit in there.units if unit.jobs != host.jobs), pack]
    if not any(
        would_do(state, (Migrate(job.id, spots, "", run.guaranteed, share),))
        for share in shares_of(state, there, packed, settings)
    ):
        return
    memo, alive = memo_of(state, met_subject(job.id)), state.jobs.rows
    before = () if memo is None else tuple(known for known in memo.value if known in alive)
    met = Remember(NAME, met_subject(job.id), (*before, *host.jobs), job.id)
    why = _why_move(state, node, mover, host)
    for share in shares_with(state, job, spots, others, settings):
        # Else a move that fails would be made again at once.
        moved = Remember(NAME, moved_subject(job.id), (state.cluster.clock_us,), job.id)
        yield (Migrate(job.id, spots, why, run.guaranteed, share), met, moved)


def _why_move(state: State, node: int, mover: _Candidate, host: _Candidate) -> str:
    """For the story."""
    jobs = " and ".join(map(str, host.jobs))
    devices = ", ".join(str(index) for _, index in sorted(host.unit.devices))
    used = f"{mover.utilisation_ppm / _PPM:.0%} and {host.utilisation_ppm / _PPM:.0%}"
    device = "devices" if len(host.unit.devices) > 1 else "device"
    left = "to those who take turns with it" if mover.group else "to one that takes turns or waits"
    return (
        f"it is to be packed with job {jobs} on {device} {devices} of {name_of(state, node)}, as they use their devices to "
        f"{used}; it leaves its own {left}"
    )
