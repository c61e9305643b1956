"""Whatever the policy: each launch and each move takes the closest idle devices of its nodes, and jobs of one task, where
nothing else decides, the best node. What is best is said by `tests.core.test_closeness`, which looks at all sets.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from typing import Any
from unittest.mock import patch

import pytest

from scheduler_service.core import enact
from scheduler_service.core.messages import Migrate, Place, Spot
from scheduler_service.core.model.values import fits
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies import registry
from scheduler_service.sim.experiments.cases import Case, simulate
from tests.core.test_closeness import DGX, Machine, Set, key
from tests.thorough import examples

PAIRS: tuple[int | None, ...] = (0, 0, 1, 1, 2, 2, 3, 3)
MACHINE: Machine = (("socket", "switch"), DGX, (None,) * 8)
NODES = [{"nodes": 4, "cpus": 32, "memory_gib": 256, "gpus": 8, "tree": {"socket": 2, "switch": 2}}]


def kind(gpus: Sequence[int], work_s: float, **more: Any) -> dict[str, Any]:
    times = {"kind": "lognormal", "mean": work_s, "deviation": work_s}
    return {"work_s": times, "gpus": {"kind": "choice", "values": gpus}, "cpus": 1, "memory_gib": 4, "grace_s": 20, **more}


KINDS = [
    kind([1, 1, 2, 3, 4, 8], 1800, share=6, estimate_error=0.3),
    kind([1, 2, 4], 240, share=2, trial=True),
    kind([1, 2, 3], 900, share=2, tasks={"kind": "choice", "values": [2, 3]}),
    kind([2, 4, 8], 1200, share=1, tasks=2),
]
WORKLOAD = {"kind": "generated", "jobs": 80, "kinds": KINDS, "arrivals": {"kind": "poisson", "load": 1.2}}


@cache
def best(idle: Set, count: int) -> tuple[object, ...]:
    return min(key(MACHINE, idle, frozenset(chosen)) for chosen in combinations(sorted(idle), count))


def idle_on(state: State, node: int) -> Set:
    mask = state.idle_devices.get(node, 0)
    return frozenset(i for i in range(8) if mask >> i & 1)


def check_devices(state: State, spots: Sequence[Spot]) -> int:
    """How many nodes there were."""
    for node in {spot.node for spot in spots}:
        taken = [frozenset(spot.devices) for spot in spots if spot.node == node and spot.devices]
        idle = idle_on(state, node)
        if len(taken) == 1:
            assert key(MACHINE, idle, taken[0]) == best(idle, len(taken[0]))
        elif taken:
            alone = [best(idle, len(one))[:2] for one in taken]
            together = frozenset[int]().union(*taken)
            distance = key(MACHINE, idle, together)[:2]
            # As close together as can be, or none could be closer for itself.
            assert distance == best(idle, len(together))[:2] or key(MACHINE, idle, taken[0])[:2] == alone[0]
    return len({spot.node for spot in spots})


def check_node(state: State, action: Place) -> None:
    job = state.jobs.rows[action.job_id]
    if len(action.spots) > 1 or not action.spots[0].devices or job.avoid or job.id in state.earmarks_of:
        return
    demand, room = job.spec.in_configuration(action.configuration).demand, state.free_resources
    nodes = [node for node in state.nodes.rows if room.is_open(node) and fits(demand, room.free(node))]
    keys = {node: (best(idle_on(state, node), demand.devices)[:-1], node) for node in nodes}
    assert action.spots[0].node == min(keys, key=keys.__getitem__)


def is_behind_another(state: State, job_id: int) -> bool:
    """Whether the first of either queue is another job, to which backfill may have given a reservation."""
    firsts = [key[-1] for lane in OWN_LANES if (key := state.site_queues[lane].first) is not None]
    return any(first != job_id for first in firsts)


@contextmanager
def watched(nodes_too: bool, backfill: bool) -> Iterator[dict[type, int]]:
    """Checks what is enacted, before it is. Behind a reservation a job gets the best of the nodes where it delays no other."""
    seen: dict[type, int] = {Place: 0, Migrate: 0, Spot: 0}
    handlers = dict(enact._HANDLERS)

    def of_place(state: State, action: Place, now: int) -> None:
        if action.share is None:
            seen[Place] += check_devices(state, action.spots)
            if nodes_too and not (backfill and is_behind_another(state, action.job_id)):
                check_node(state, action)
                seen[Spot] += 1
        handlers[Place](state, action, now)

    def of_move(state: State, action: Migrate, now: int) -> None:
        if action.share is None and not set(action.spots) & {Spot(r.node, r.devices) for r in state.runs_of(action.job_id)}:
            seen[Migrate] += check_devices(state, action.spots)
        handlers[Migrate](state, action, now)

    with patch.dict(enact._HANDLERS, {Place: of_place, Migrate: of_move}):
        yield seen


CHOOSE_NODES_OTHERWISE = {"gandiva"}
"""By the affinity and the load of servers, as the paper has it."""


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("name", registry.for_sites())
def test_every_policy_places_closely(name: str, backfill: bool) -> None:
    policy: dict[str, Any] = {"name": name}
    if backfill:
        policy["backfill"] = True
    jobs = 80 if name != "gandiva" else 40  # time slices cost many steps
    for seed in range(examples(1)):
        case = Case.model_validate({"cluster": NODES, "workload": WORKLOAD | {"jobs": jobs}, "policy": policy, "seed": seed})
        with watched(name not in CHOOSE_NODES_OTHERWISE, backfill) as seen:
            simulate(case)
        assert seen[Spot] >= (0 if name in CHOOSE_NODES_OTHERWISE else 10 if backfill else 80)
        assert seen[Place] >= (80 if name != "gandiva" else 20)  # where jobs share devices, no devices are chosen
