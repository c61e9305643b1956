"""Random mixes of jobs that take turns on devices: the pairs that probing packs, and the best possible ones.

Each device has a few jobs that take turns. Pairs are chosen and judged by the functions that `policy: gandiva` has (`pairing`),
at the rates that Gavel's authors measured. The best pairs are computed separately, as a maximum-weight matching. A device's
work is the mean over its rows of the sum of the normalized rates of the jobs that execute in a row: 1 while no jobs are packed.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from random import Random
from typing import Literal, NamedTuple

import networkx as nx

from scheduler_service.policies.gandiva.pairing import may_be_worth_a_move, next_pair, pays
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.sim.sharing.measured import Tables, assumed_use

Rule = Literal["random", "group", "utilisation", "learnt", "moved"]
PROBE_MIN = 2
"""The length of a probe: nodes measure once a minute, and a measurement counts if the present share plan covers all of it."""
NOISE = 0.02
"""Relative standard deviation of measurements, as in simulations."""
_PPM = 1_000_000


class Pairs(NamedTuple):
    """Rates of kinds of jobs on one model of device."""

    kinds: tuple[str, ...]
    work: Mapping[tuple[str, str], float]
    """The sum of the normalized rates of two jobs on one device; 0: they do not fit into its memory."""
    utilisation: Mapping[str, int]
    """Utilization in millionths; assumed."""


class Seen(NamedTuple):
    """The outcome of one mix, per device."""

    work: float
    probes: float
    undone: float
    lost_min: float
    """Device-minutes of work that were lost while probes were worse than the state before."""
    moves: float = 0


class Best(NamedTuple):
    """The best possible work of one mix, per device."""

    here: float
    """If jobs stay on their devices."""
    anywhere: float
    """If any two jobs of the mix could be packed."""


class _Job(NamedTuple):
    """A job, with the fields of `pairing.Candidate`."""

    utilisation_ppm: int
    jobs: tuple[int, ...]
    kind: str
    device: int = 0


Mix = Sequence[Sequence[str]]
"""The kinds of the jobs of each device."""


def pairs_of(tables: Tables, device: str) -> Pairs:
    alone = {name: rate for (name, on, gpus, spread), rate in tables.alone.items() if (on, gpus, spread) == (device, 1, False)}
    kinds = tuple(sorted(name for name, rate in alone.items() if rate))
    work = {}
    for one in kinds:
        for other in kinds:
            rates = (tables.pairs.get((one, other, device, 1), 0), tables.pairs.get((other, one, device, 1), 0))
            work[one, other] = rates[0] / alone[one] + rates[1] / alone[other] if all(rates) else 0.0
    return Pairs(kinds, work, {name: assumed_use(tables, name, device)[0] for name in kinds})


def mixes(of: Pairs, count: int, devices: int, jobs: int, seed: int) -> list[Mix]:
    """Draw random mixes with a number of jobs on each device."""
    rng = Random(f"{seed}:mixes")
    return [[[rng.choice(of.kinds) for _ in range(jobs)] for _ in range(devices)] for _ in range(count)]


# ---- probing -----------------------------------------------------------------------------------------------------------


def play(of: Pairs, some: Sequence[Mix], rule: Rule, seed: int) -> list[Seen]:
    """Play the mixes in turn; what is learned from one is used in the next. The rules are: random pairs; the lowest utilization
    first, judged by the work of the whole group; the same, judged by the work of the pair; pairs that have paid before first;
    and such pairs of all jobs of the mix, one of which moves to the other. With each rule, pairs that have not paid are not
    tried again."""
    probing = Probing(of, rule, Random(f"{seed}:probes"))
    return [probing.mix(mix) for mix in some]


class Probing:
    def __init__(self, of: Pairs, rule: Rule, rng: Random) -> None:
        self._of, self._rule, self._rng = of, rule, rng
        self._gain = Settings().packing_gain
        self._learnt: dict[tuple[str, str], tuple[bool, int]] = {}

    def mix(self, mix: Mix) -> Seen:
        """Probe one device after the other, each until there is no pair left to try."""
        if self._rule == "moved":
            return self._all(mix)
        found = [self._device(kinds) for kinds in mix]
        return Seen(*(sum(each) / len(mix) for each in zip(*found, strict=True)))

    def _device(self, kinds: Sequence[str]) -> Seen:
        rest = [_Job(self._order(kind), (number,), kind) for number, kind in enumerate(kinds)]
        packed: list[float] = []
        probes = undone = 0
        lost = 0.0
        while (pair := next_pair(rest, self._known_pair, most=2)) is not None:
            one, other = pair
            work, before = self._of.work[one.kind, other.kind], _work_of_device(len(kinds), packed)
            during = _work_of_device(len(kinds), [*packed, work])
            seen = Fraction(work * self._rng.gauss(1, NOISE))
            paid = pays(Fraction(during / before) if self._rule == "group" else seen, self._gain)
            probes += 1
            self._learnt[_key(one, other)] = paid, round(seen * _PPM) if self._rule == "learnt" else 0
            if paid:
                packed.append(work)
                rest = [job for job in rest if job not in pair]
            else:
                undone += 1
                lost += (before - during) * PROBE_MIN
        return Seen(_work_of_device(len(kinds), packed), probes, undone, lost)

    def _all(self, mix: Mix) -> Seen:
        """Probe all devices together, like those of a server. The cost of a move is left out, and so is the time a job must
        stay before it may move."""
        rest = [
            _Job(self._of.utilisation[kind], (100 * device + number,), kind, device)
            for device, kinds in enumerate(mix)
            for number, kind in enumerate(kinds)
        ]
        jobs, packed = list(map(len, mix)), [list[float]() for _ in mix]
        met: set[tuple[int, ...]] = set()
        probes = undone = moves = 0
        lost = 0.0

        def known_if_worth(one: _Job, other: _Job) -> tuple[bool, int] | None:
            seen = self._known_pair(one, other)
            worth = one.device == other.device or (one.jobs + other.jobs not in met and may_be_worth_a_move(one, other, seen))
            return seen if worth else (False, 0)

        while (pair := next_pair(rest, known_if_worth, most=2)) is not None:
            rows = [count - len(some) for count, some in zip(jobs, packed, strict=True)]
            mover, host = sorted(pair, key=lambda job: (-rows[job.device], job.utilisation_ppm, job.jobs))
            if mover.device != host.device:
                met.add(pair[0].jobs + pair[1].jobs)
                if rows[mover.device] == 1:
                    continue  # its device would be idle
                moves += 1
                jobs[mover.device] -= 1
                jobs[host.device] += 1
                rest.remove(mover)
                mover = mover._replace(device=host.device)
                rest.append(mover)
            at, work = host.device, self._of.work[mover.kind, host.kind]
            seen = Fraction(work * self._rng.gauss(1, NOISE))
            probes += 1
            self._learnt[_key(mover, host)] = pays(seen, self._gain), round(seen * _PPM)
            before = _work_of_device(jobs[at], packed[at])
            if pays(seen, self._gain):
                packed[at].append(work)
                rest = [job for job in rest if job not in (mover, host)]
            else:
                undone += 1
                lost += (before - _work_of_device(jobs[at], [*packed[at], work])) * PROBE_MIN
        work_now = sum(_work_of_device(count, some) for count, some in zip(jobs, packed, strict=True))
        return Seen(*(each / len(mix) for each in (work_now, probes, undone, lost, moves)))

    def _order(self, kind: str) -> int:
        return self._rng.randrange(_PPM) if self._rule == "random" else self._of.utilisation[kind]

    def _known_pair(self, one: _Job, other: _Job) -> tuple[bool, int] | None:
        if not self._of.work[one.kind, other.kind]:
            return False, 0  # their measured memory does not fit
        return self._learnt.get(_key(one, other))


def _key(one: _Job, other: _Job) -> tuple[str, str]:
    return min(one.kind, other.kind), max(one.kind, other.kind)


def _work_of_device(jobs: int, packed: Sequence[float]) -> float:
    """The work of a device on which jobs take turns, with these pairs of them executing together."""
    rows = jobs - len(packed)
    return (sum(packed) + jobs - 2 * len(packed)) / rows


# ---- the best possible -------------------------------------------------------------------------------------------------


def best(of: Pairs, mix: Mix) -> Best:
    """The best work of a mix. Devices with one row each would do the mean over all rows, so `anywhere` is a bound."""
    everyone = [kind for kinds in mix for kind in kinds]
    return Best(sum(best_of(of, kinds) for kinds in mix) / len(mix), best_of(of, everyone))


def best_of(of: Pairs, kinds: Sequence[str]) -> float:
    """The most work by packing pairs of these jobs. A pair's gain depends on the number of rows, so the matching is computed
    again with the weights that its own result implies, until it is stable (Dinkelbach): no matching is better than the last
    one."""
    does = 1.0
    while True:
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(len(kinds)))
        for one, other in combinations(range(len(kinds)), 2):
            work = of.work[kinds[one], kinds[other]]
            if work + does > 2:
                graph.add_edge(one, other, weight=work + does - 2)
        pairs = nx.max_weight_matching(graph)
        better = _work_of_device(len(kinds), [of.work[kinds[one], kinds[other]] for one, other in pairs])
        if better <= does + 1e-9:
            return does
        does = better
