"""Packing: jobs that take turns on the same devices execute at the same time instead, if that is faster (Gandiva, 4.2.2).

Each packing is a probe. Pairs of kinds that have paid come first, then the jobs of the lowest utilization (`pairing`), and only
if their profiles say that their memory fits. A probe is judged by the sum of normalized rates, which is the rate of each job
relative to its rate while it executes alone: what the packed jobs do has to be better than what they did in turns, and what all
members of the group do must not be less. Else the rows return to what they were. The verdict and the sum are remembered for the
pair of kinds.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from scheduler_service.core.messages import BeginProbe, EndProbe, Plan, Remember, Share
from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.operations.measuring import is_certain, plan_of
from scheduler_service.core.sharing.equations import Device, limit_mib, time_share
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import forget, kind_of, memo_of, pair_subject
from scheduler_service.policies.gandiva.pairing import next_pair, pays
from scheduler_service.policies.gandiva.share_groups import arrange_rows, devices_of, in_rows, is_ours, runs_in
from scheduler_service.policies.gandiva.slicing.device_memory import needed_mib
from scheduler_service.policies.gandiva.slicing.probes import NAME, Probe, probe_of, probe_subject, remember_probe
from scheduler_service.policies.gandiva.slicing.rows import Unit, fair_rows, split_units, units_of
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import would_do

_PPM = 1_000_000
_TRIED = 4
"""Pairs of a group that are tried at a look, if there is no room for the first."""
BETTER, WORSE = 1, 0
"""How the value of a memo about a pair of kinds begins."""


class Pair(NamedTuple):
    """Units that take turns on the same devices. Those with the lowest utilization are packed first."""

    utilisation_ppm: tuple[int, int]
    group: int
    one: Unit
    other: Unit


class _Candidate(NamedTuple):
    """As `pairing.Candidate`."""

    utilisation_ppm: int
    jobs: tuple[int, ...]
    unit: Unit


# ---- candidates --------------------------------------------------------------------------------------------------------


def pairs(
    state: State, vc: str, groups: Iterable[int], settings: Settings, refused: Container[tuple[int, ...]] = ()
) -> list[Pair]:
    """The best pair of each of these groups, the lowest utilization first. `refused`: the jobs of pairs that are left out."""
    found = []
    for number in groups:
        group = state.share_groups.rows[number]
        if len(group.rows) > 1 and all(row.weight for row in group.rows) and is_ours(state, group, vc):
            found += _best_pair(state, group, settings, refused)
    return sorted(found)


def _best_pair(state: State, group: ShareGroup, settings: Settings, refused: Container[tuple[int, ...]]) -> list[Pair]:
    """One, or none."""

    def known_pair(one: _Candidate, other: _Candidate) -> tuple[bool, int] | None:
        return (False, 0) if (*one.jobs, *other.jobs) in refused else may_pack(state, group.vc, one.unit, other.unit)

    alike: dict[object, list[_Candidate]] = defaultdict(list)
    for unit in units_of(group.rows, runs_in(state, group)):
        if (utilisation := utilisation_of(state, unit)) is not None:
            alike[unit.devices].append(_Candidate(utilisation, unit.jobs, unit))
    best: list[Pair] = []
    for units in alike.values():
        pair = next_pair(units, known_pair, settings.packed_most)
        if pair is not None:
            one, other = pair
            best.append(Pair((one.utilisation_ppm, other.utilisation_ppm), group.id, one.unit, other.unit))
    return sorted(best)[:1]


def utilisation_of(state: State, unit: Unit) -> int | None:
    """The total utilization of its devices. None: one of its jobs has not been measured alone on devices such as it has."""
    total = 0
    for job_id in unit.jobs:
        job = state.jobs.rows[job_id]
        if job.profile is None or job.profile.utilisation_ppm < 0 or not needed_mib(job, job.launch_spec.demand.devices):
            return None
        total += job.profile.utilisation_ppm
    return total


def may_pack(state: State, vc: str, one: Unit, other: Unit) -> tuple[bool, int] | None:
    """As `learnt_verdict`. Packing does not pay for units that need more memory together than their devices have."""
    needs, others = _needs(state, one), _needs(state, other)
    if one.devices == other.devices:
        need = max(needs[device] + others[device] for device in one.devices)
    else:
        need = max(needs.values()) + max(others.values())  # on the devices of either
    least = min(limit_mib(state.devices.rows[device].memory_mib, state.settings) for device in (*one.devices, *other.devices))
    return (False, 0) if need > least else learnt_verdict(state, vc, one.jobs, other.jobs)


def _needs(state: State, unit: Unit) -> dict[Device, int]:
    """The memory that the unit needs of each of its devices, in MiB, by the profiles of its jobs."""
    needs = dict.fromkeys(unit.devices, 0)
    for key in unit.runs:
        run, job = state.runs.rows[key], state.jobs.rows[key.job_id]
        for index in run.devices:
            needs[run.node, index] += needed_mib(job, job.launch_spec.demand.devices)
    return needs


def learnt_verdict(state: State, vc: str, one: Sequence[int], other: Sequence[int]) -> tuple[bool, int] | None:
    memos = [memo_of(state, subject) for subject in _pair_subjects(state, vc, one, other)]
    known = [(memo.value[0] == BETTER, int(memo.value[1])) for memo in memos if memo is not None]
    return min(known) if known and (len(known) == len(memos) or not min(known)[0]) else None


def _pair_subjects(state: State, vc: str, one: Sequence[int], other: Sequence[int]) -> list[str]:
    rows = state.jobs.rows
    return sorted({pair_subject(vc, kind_of(rows[a]), kind_of(rows[b])) for a in one for b in other})


# ---- the probe ---------------------------------------------------------------------------------------------------------


def begin(state: State, best: Pair, settings: Settings) -> Plan | None:
    """Packs the pair, or the next one of its group for which there is room, of the first few. None: there is no such pair."""
    refused, next_best = set[tuple[int, ...]](), [best]
    while next_best and len(refused) < _TRIED:
        (pair,) = next_best
        if (plan := _begin(state, pair, settings)) is not None:
            return plan
        refused.add((*pair.one.jobs, *pair.other.jobs))
        next_best = pairs(state, state.share_groups.rows[pair.group].vc, [pair.group], settings, refused)
    return None


def _begin(state: State, pair: Pair, settings: Settings) -> Plan | None:
    """None: the memory of the devices, or of the node, does not suffice."""
    group = state.share_groups.rows[pair.group]
    runs, vc = runs_in(state, group), group.vc
    units = [unit for unit in units_of(group.rows, runs) if unit.jobs not in (pair.one.jobs, pair.other.jobs)]
    jobs = tuple(sorted({*pair.one.jobs, *pair.other.jobs}))
    packed = Unit(jobs, tuple(sorted({*pair.one.runs, *pair.other.runs})), pair.one.devices)
    share = arrange_rows(state, group, [*units, packed], runs)
    if share is None:
        return None
    now = state.cluster.clock_us
    cycle_us = max(settings.period_us, share.period_us if len(share.rows) > 1 else 0)  # in which the pair executes once
    deadline = now + round(settings.probe_periods * cycle_us)
    limits = tuple((key, run.device_memory_mib) for key, run in sorted(runs.items()))
    rates = tuple((job_id, round(rate * _PPM)) for job_id, rate in sorted((_rates(state, group, runs) or {}).items()))
    probe = Probe((pair.one.jobs, pair.other.jobs), rates, deadline, group.rows, limits, group.period_us, share.rows)
    used = " and ".join(f"{part / _PPM:.0%}" for part in pair.utilisation_ppm)
    why = f"packing is tried: jobs {_names(jobs)} execute together on devices that they use to {used} when they take turns"
    return (BeginProbe(jobs, share, why), remember_probe(vc, group.id, probe))


def judge(state: State, vc: str, number: int, settings: Settings) -> Plan | None:
    """Ends a probe, if it can be judged or has lasted for too long. None: it continues."""
    memo, group = memo_of(state, probe_subject(vc, number)), state.share_groups.rows.get(number)
    if memo is None:
        return ()
    probe, end = probe_of(memo), forget(probe_subject(vc, number))
    if group is None or not _is_packed(state, group, probe.jobs):
        return (EndProbe(probe.jobs, None, "packing ends undecided: not all of the packed jobs are there any more"), end)
    runs = runs_in(state, group)
    rates = _rates(state, group, runs)
    if rates is None:
        if state.cluster.clock_us < probe.deadline_us:
            return None
        notes = tuple(_remember_pairs(state, vc, probe, False, Fraction(0), settings))  # else it would be tried again at once
        return _undo(state, group, probe, runs, "packing is undone: the jobs were not measured in time", (*notes, end))
    in_turns = fair_rows(split_units(units_of(group.rows, runs), probe.parts, runs))
    packed_before = {job_id: Fraction(rate, _PPM) for job_id, rate in probe.rates}
    others = {job_id: rate for job_id, rate in rates.items() if job_id not in probe.jobs}
    ratio = _total(group.rows, runs, rates) / _total(in_turns, runs, others | packed_before)
    work = _work(probe, rates, packed_before)
    better = pays(work, settings.packing_gain) and ratio >= 1
    seen = _measured_text(state, probe.jobs, work)
    notes = tuple(_remember_pairs(state, vc, probe, better, work, settings))
    if better:
        return (EndProbe(probe.jobs, None, f"packing is kept: {seen}"), *notes, end)
    return _undo(state, group, probe, runs, f"packing is undone: {seen}", (*notes, end))


def _is_packed(state: State, group: ShareGroup, jobs: Sequence[int]) -> bool:
    rows = [in_rows(group.rows, job_id) for job_id in jobs]
    return bool(rows[0]) and all(each == rows[0] for each in rows) and all(job_id in state.jobs.rows for job_id in jobs)


def _undo(
    state: State, group: ShareGroup, probe: Probe, runs: Mapping[RunKey, Run], why: str, notes: tuple[Remember, ...]
) -> Plan | None:
    """The rows are as before, to the last limit, if no member has come or gone in between. None: they cannot be changed now,
    such as while a member is promised to a job that waits for it."""
    if group.rows == probe.during:
        share: Share | None = Share(probe.before, probe.limits, probe.period_us, group.open)
    else:
        share = arrange_rows(state, group, split_units(units_of(group.rows, runs), probe.parts, runs), runs)
    plan: Plan = (EndProbe(probe.jobs, share, why), *notes)
    return plan if share is not None and would_do(state, plan) else None


def _rates(state: State, group: ShareGroup, runs: Mapping[RunKey, Run]) -> dict[int, Fraction] | None:
    """The rate of each packed job in the group while it executes, relative to its rate when it executes alone. None: one of
    them was not measured since the rows are as they are."""
    rates: dict[int, Fraction] = {}
    for unit in units_of(group.rows, runs):
        for job_id in unit.jobs if len(unit.jobs) > 1 else ():
            job, first = state.jobs.rows[job_id], next(key for key in unit.runs if key.job_id == job_id)
            measured = state.measured.rows.get(first)
            if measured is None or measured.plan != plan_of(group) or not is_certain(measured) or job.profile is None:
                return None
            rates[job_id] = Fraction(job.profile.mini_batch_us, measured.mini_batch_us)
    return rates


def _total(rows: Sequence[Row], runs: Mapping[RunKey, Run], rates: Mapping[int, Fraction]) -> Fraction:
    """The sum of normalized rates; a job counts once for each of its devices."""
    total = Fraction(0)
    for job_id in sorted({key.job_id for key in runs}):
        first = min(key for key in runs if key.job_id == job_id)
        total += time_share(rows, first) * rates.get(job_id, 1) * devices_of(runs, job_id)
    return total


def _work(probe: Probe, rates: Mapping[int, Fraction], before: Mapping[int, Fraction]) -> Fraction:
    """The work of the packed jobs, by what they did in turns: on the same devices, and each part for as long as others."""
    in_turns = sum((before.get(job_id, Fraction(1)) for job_id in probe.jobs), Fraction(0)) / len(probe.parts)
    return sum((rates[job_id] for job_id in probe.jobs), Fraction(0)) / in_turns


def _measured_text(state: State, jobs: Sequence[int], work: Fraction) -> str:
    """For the story: what was measured before and after."""
    parts = []
    for job_id in jobs:
        job = state.jobs.rows[job_id]
        measured = state.measured.rows[state.runs_of(job_id)[0].key]
        assert job.profile is not None  # it was packed
        parts.append(f"job {job_id} takes {_ms(measured.mini_batch_us)} a mini-batch, {_ms(job.profile.mini_batch_us)} alone")
    return f"the devices do {float(work):.2f} times the work that they do in turns; {'; '.join(parts)}"


def _remember_pairs(
    state: State, vc: str, probe: Probe, better: bool, work: Fraction, settings: Settings
) -> Iterator[Remember]:
    due = state.cluster.clock_us + round(settings.remembered * SECOND)
    value = (BETTER if better else WORSE, round(work * _PPM))
    for subject in _pair_subjects(state, vc, *probe.parts):
        yield Remember(NAME, subject, value, due_us=due)


def _ms(us: Micros) -> str:
    return f"{us / 1000:.4g} ms"


def _names(jobs: Sequence[int]) -> str:
    return f"{', '.join(map(str, jobs[:-1]))} and {jobs[-1]}"
