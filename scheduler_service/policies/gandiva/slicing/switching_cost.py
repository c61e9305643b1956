"""How long a cycle of turns takes: as long as the setting says, or longer if parks and resumes would take too much of it.

Two things make a cycle longer. The time that a device loses to switching is to be at most `switching_cost` percent of the
cycle. And a park has to end in time: agents give up after half of the next turn, so a turn is to be five times as long as the
park before it. A park that outlasts half of a turn is tried again before one that is two and a half times as long.

These are functions of plain values. With R rows of equal weight no job waits for longer than P (1 - 1 / R) between two turns as
long as none moves, where P is at most `longest_period`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import Micros
from scheduler_service.core.sharing.equations import Device
from scheduler_service.policies.gandiva.slicing.settings import Settings

_TURN = 5
"""A turn is at least so many times as long as the park before it. Half of the turn is the limit of the park, and half of the
limit is for asking the program, where the driver comes next."""
_LIMIT = 2
"""One part in so many of a turn is the limit of the park before it."""
_STEPS = 4
"""Periods that are doubled have so many lengths between them: 60, 75, 90, 105, 120, 150, ... seconds."""


class Cost(NamedTuple):
    """The time that the changes of turns of some rows take; 0 for rows that take no turns."""

    lost_us: Micros = 0
    """Time that the device which loses most loses in each cycle: no run executes there, because of parks and resumes."""
    parks_us: Micros = 0
    """The least period with which every park ends in time."""
    slowest: int = 0
    """The job whose parks that is about."""
    slowest_us: Micros = 0
    """How long these take, at least."""
    known: bool = False
    """Whether all jobs that are parked and resumed have been before, or it was tried."""


class _Member(NamedTuple):
    """A job that is parked and resumed."""

    devices: frozenset[Device]
    switching: Switching
    """The longest of its tasks."""
    known: bool


def cost_of(rows: Sequence[Row], runs: Mapping[RunKey, Run], known: Mapping[RunKey, Switching], longest_us: Micros) -> Cost:
    """`runs` has all that are in the rows, and `known` those of which it is known what their switches take. A park that cannot
    end in time within the longest period is not waited for."""
    turns = [row for row in rows if row.weight]
    if len(turns) < 2:
        return Cost()
    whole = sum(row.weight for row in turns)
    members = {job_id: _member(job_id, rows, runs, known) for job_id in sorted({key.job_id for key in runs})}
    lost: dict[Device, Micros] = {}
    parks, switched = (0, 0, 0), set[int]()
    for number, row in enumerate(turns):
        before, now = _jobs(turns[number - 1]), _jobs(row)
        switched |= before ^ now
        leaving = [members[job_id] for job_id in sorted(before - now)]
        for device, us in _lost_times(leaving, [members[job_id] for job_id in sorted(now - before)]):
            lost[device] = lost.get(device, 0) + us
        for job_id in sorted(before - now):
            takes = _takes(members[job_id].switching, longest_us * row.weight // whole)
            parks = max(parks, (-(-_TURN * takes * whole // row.weight), job_id, takes))
    return Cost(max(lost.values(), default=0), *parks, all(members[job_id].known for job_id in switched))


def period_for(cost: Cost, present_us: Micros, settings: Settings) -> Micros:
    """The period of rows that cost so much. It is the least that suffices, rounded up. It gets shorter only if that would
    suffice for a cost that is a quarter higher and for parks that take twice as long, which depends on when mini-batches end;
    and only if both are known. So it does not follow what is measured up and down."""
    if not settings.switching_cost:
        return settings.period_us
    by_cost = _by_cost(cost, settings)
    wanted = _round_up(max(by_cost, cost.parks_us), settings)
    shorter = _round_up(max(by_cost * 5 // 4, cost.parks_us * 2), settings)
    return wanted if wanted > present_us or (cost.known and shorter < present_us) else present_us


def why_retimed(cost: Cost, before_us: Micros, now_us: Micros, settings: Settings) -> str:
    """For the story."""
    said = f"a cycle of turns takes {_s(now_us)} instead of {_s(before_us)}"
    if not settings.switching_cost:
        return f"{said}: by the settings, whatever parks and resumes take"
    if now_us == longest_us(settings) < before_us:
        return f"{said}: by the settings, no cycle is longer"
    if cost.parks_us > _by_cost(cost, settings):
        slowest = f"a park of job {cost.slowest} takes {_s(cost.slowest_us)}"
        if now_us > before_us:
            return f"{said}: {slowest} or more, and has to end within half of a turn"
        return f"{said}: {slowest}, no other takes longer, and all end in time in shorter turns"
    of_both = f"{_percent(cost.lost_us, now_us)} of the cycle; before, {_percent(cost.lost_us, before_us)}"
    return f"{said}: to park and resume takes {_s(cost.lost_us)} of each, which is {of_both}"


def longest_us(settings: Settings) -> Micros:
    """The longest period that a group may have."""
    return max(settings.longest_period_us, settings.period_us)


# ---- parts -------------------------------------------------------------------------------------------------------------


def _jobs(row: Row) -> set[int]:
    return {key.job_id for key in row.runs}


def _member(job_id: int, rows: Sequence[Row], runs: Mapping[RunKey, Run], known: Mapping[RunKey, Switching]) -> _Member:
    keys = sorted({key for row in rows for key in row.runs if key.job_id == job_id})
    seen = [known[key] for key in keys if key in known]
    longest = Switching(*map(max, zip(*seen, strict=True))) if seen else Switching()
    devices = frozenset((runs[key].node, index) for key in keys for index in runs[key].devices)
    return _Member(devices, longest, len(seen) == len(keys))


def _lost_times(leaving: Collection[_Member], entering: Collection[_Member]) -> Iterator[tuple[Device, Micros]]:
    """For each device on which others execute than before, for how long none executes. A run resumes when all of its devices
    are free, and all of a gang do together."""
    stops: dict[Device, Micros] = {}
    free: dict[Device, Micros] = {}
    for member in leaving:
        wait_us, park_us, *_ = member.switching
        for device in member.devices:
            stops[device] = max(stops.get(device, 0), wait_us)
            free[device] = max(free.get(device, 0), wait_us + park_us)
    begins: dict[Device, Micros] = {}
    for member in entering:
        at = max(free.get(device, 0) for device in member.devices) + member.switching.resume_us
        for device in member.devices:
            begins[device] = min(begins.get(device, at), at)
    for device, at in begins.items():
        yield device, max(at - stops.get(device, 0), 0)


def _takes(switching: Switching, turn_us: Micros) -> Micros:
    """How long a park takes, at least. `turn_us`: the longest turn that can come after it. If the park was tried for so long as
    that allows, it is no use to wait for it."""
    if switching.outlasted_us * _LIMIT * 10 >= turn_us * 9:
        return switching.wait_us + switching.park_us
    return switching.whole_park_us


def _by_cost(cost: Cost, settings: Settings) -> Micros:
    return ceil(cost.lost_us * 100 / settings.switching_cost)


def _round_up(least_us: Micros, settings: Settings) -> Micros:
    """Up to one of a few lengths, from that of the setting to the longest."""
    longest, doubled = longest_us(settings), settings.period_us
    while 2 * doubled <= min(least_us, longest):
        doubled *= 2
    quarters = -(-max(least_us - doubled, 0) * _STEPS // doubled)
    return min(doubled + doubled * quarters // _STEPS, longest)


def _s(us: Micros) -> str:
    return f"{us / 1_000_000:.3g} s"


def _percent(part: Micros, whole: Micros) -> str:
    return f"{100 * part / whole:.2g} %"
