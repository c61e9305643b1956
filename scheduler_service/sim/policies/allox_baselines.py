"""AlloX's baselines in its paper (EuroSys 2020, sections 2.2 and 5.1.1): rules for jobs with several configurations.

Each rule chooses a job and a configuration together; none preempts. "Shortest" is by the users' estimates. By JSQ+ a
job joins, on its arrival, the queue of the kind of slot on which it completes first.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.choice_loop import Board, Launched, Rule, by_arrival, by_time, choosing
from scheduler_service.policies.allox.configuration_times import Known, Way
from scheduler_service.policies.allox.slots import Held, Kinds, collect_held
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.stages import Stages


class Settings(NamedTuple):
    """Settings of these policies only."""

    users: float = 0
    """Equal share: how many users divide the cluster; 0: those who have queued or running jobs."""
    weight: Mapping[str, float] = MappingProxyType({})
    """DRFA: the weight of a slot of each configuration, by the configuration's number; 1 if not given."""
    unknown: float = 3600
    """Assumed seconds of a configuration without an estimate."""


def fastest(_state: State, _board: Board, of: Sequence[Way]) -> Sequence[Way]:
    return [min(of, key=lambda way: way.time_us)]


def named_first(_state: State, _board: Board, of: Sequence[Way]) -> Sequence[Way]:
    return of[:1]


def main_resource(spec: JobSpec) -> int:
    """The main resource of a job in one configuration: devices, or CPUs if it has no devices."""
    return spec.demand.devices or spec.demand.cpu_milli


def capacity_for(state: State, spec: JobSpec) -> int:
    """The amount of the main resource on all nodes that have room for a task."""
    task = max(spec.tasks())
    columns = state.free_resources.capacities(state.suitable_for(spec)).T.tolist()
    at = 2 if spec.demand.devices else 0
    return sum(amounts[at] for amounts in columns if all(have >= want for have, want in zip(amounts, task, strict=True)))


def sum_by_user(launched: Iterable[Launched], amount: Callable[[Launched], float]) -> dict[str, float]:
    """The sum of an amount over each user's jobs that have a run. Users without runs are left out."""
    found: dict[str, float] = {}
    for one in launched:
        found[one.user] = found.get(one.user, 0.0) + amount(one)
    return found


def by_least(used: Mapping[str, float], users: Iterable[str]) -> list[Sequence[str]]:
    return [(user,) for user in sorted(users, key=lambda user: (used.get(user, 0.0), user))]


def by_dominant_share(state: State, board: Board) -> Iterable[Sequence[str]]:
    """Each user in turn, the one with the least dominant share first (online DRF). Memory is not scarce in these studies, and a
    job counts by its main resource."""
    capacities: dict[Needs, int] = {}

    def share(one: Launched) -> float:
        needs = one.spec.needs()
        if needs not in capacities:
            capacities[needs] = max(capacity_for(state, one.spec), 1)
        return main_resource(one.spec) / capacities[needs]

    return by_least(sum_by_user(board.launched_jobs(state), share), board.users())


def equal_share(rule: Rule, users: int) -> Rule:
    """Each user has the same part of the slots of each kind, and no more. A user's first job on a kind may always run there."""

    def may_start(state: State, board: Board, way: Way) -> bool:
        running = board.launched_jobs(state)
        of = users or len({one.user for one in running}.union(board.users()))
        spec = way.job.spec
        among = state.suitable_for(spec)
        mine = [one.spec for one in running if one.user == way.job.user]
        same = [
            one for one in mine if state.suitable_for(one) == among and bool(one.demand.devices) == bool(spec.demand.devices)
        ]
        held = sum(map(main_resource, same))
        return not held or (held + main_resource(spec)) * of <= capacity_for(state, spec)

    def turns(_state: State, board: Board) -> Iterable[Sequence[str]]:
        return [(user,) for user in board.users()]

    return rule._replace(turns=turns, may_start=may_start)


def by_weighted_use(weight: Mapping[str, float]) -> Rule:
    """DRFA: slots of all configurations are one resource, in which each counts by its average speedup."""

    def counts(one: Launched) -> float:
        return max(one.spec.demand.devices, 1) * weight.get(str(one.configuration), 1.0)

    return Rule(by_time, turns=lambda state, board: by_least(sum_by_user(board.launched_jobs(state), counts), board.users()))


RULES: dict[str, Callable[[Settings], Rule]] = {
    "es-fcfs": lambda settings: equal_share(Rule(by_arrival), round(settings.users)),
    "es": lambda settings: equal_share(Rule(by_time), round(settings.users)),
    "drff": lambda _: Rule(by_arrival, named_first, by_dominant_share),
    "drfs": lambda _: Rule(by_time, fastest, by_dominant_share),
    "drfa": lambda settings: by_weighted_use(settings.weight),
    "sjf-plus": lambda _: Rule(by_time),
    "jsq-plus": lambda _: Rule(by_arrival, where_it_completes_first),
    "best-fit": lambda _: Rule(by_arrival, fastest),
}
"""The rules by the policies' names."""


def make_stages(name: str, options: Options) -> Stages:
    settings = own_settings(Settings, options.own)
    return Stages(choosing(RULES[name](settings), round(settings.unknown * SECOND), 0))


UNKNOWN_US = 3600 * SECOND


def where_it_completes_first(state: State, board: Board, of: Sequence[Way]) -> Sequence[Way]:
    """The configuration with the least waiting and processing time, behind all jobs that are in the queues already."""
    if len(of) == 1:
        return of
    now = state.cluster.clock_us
    runs = collect_held(state, now, UNKNOWN_US)
    return [min(of, key=lambda way: _completes(state, board, way, runs, now))]


def _completes(state: State, board: Board, way: Way, runs: Held, now: Micros) -> Micros:
    kinds = Kinds(state, Known(UNKNOWN_US), 0)
    slots = kinds.free_at(kinds.kind_of(way.job.spec), runs, now).tolist()
    if not slots:
        return 1 << 62
    needs = way.job.spec.needs()
    for item in board.queued.values():
        for other in item.offered:
            if other.job.spec.needs() == needs:
                heapq.heapreplace(slots, slots[0] + other.time_us)
    return int(slots[0]) + way.time_us
