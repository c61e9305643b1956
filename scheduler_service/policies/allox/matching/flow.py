"""A better plan by a minimum-cost flow over some of the positions, solved by OR-Tools.

Jobs are sources, positions of kinds are nodes, and slots are arcs from a position to the sink. A job has arcs to the positions
near those that it would have in the given plan. A position has an arc for each slot near the last one that it uses, and an arc
for each bundle of slots further off. A bundle has the price of its most expensive slot, or of its cheapest one if its slots are
in use. A plan that the flow prefers to the given one is therefore cheaper, by at least as much as the flow says. `residual`
shows whether the arcs that are left out matter.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from scheduler_service.policies.allox.matching.instance import FAR, Instance
from scheduler_service.policies.allox.matching.plan import Plan, plan
from scheduler_service.policies.allox.matching.problem import Ints

_LARGEST: Final = 1 << 60
"""OR-Tools multiplies costs by the number of nodes. The products stay below this limit, an eighth of what 64 bits can hold."""
_NEAR: Final = 32
"""How many slots on either side of the last one in use have an arc each. The bundles beyond grow by a quarter each."""


def flow(instance: Instance, given: Plan, reach: Callable[[Ints], Ints]) -> Plan:
    """A plan for the same jobs that costs no more than the given one, unless times are so long that they have to be rounded for
    OR-Tools. The position of each job is at most `reach(position)` from where the job would be in the given plan. Raises
    RuntimeError if OR-Tools finds no flow, though the given plan is one."""
    times = instance.times
    placed = given.order
    kinds = len(instance.slots)
    low = np.maximum(given.above - reach(given.above), 1)[placed]
    high = (given.below + reach(given.below))[placed]
    sizes = np.where(times[placed] < FAR, high - low + 1, 0).ravel()
    width = int(high.max(initial=1))
    pair = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes - low.ravel(), sizes)
    costs = position * np.repeat(times[placed].ravel(), sizes)
    job, kind = np.divmod(pair, kinds)
    place = len(placed) + kind * width + position - 1
    sink = len(placed) + kinds * width
    tails, capacities, prices = _slots(instance, given, width)
    unit = _unit(max(int(costs.max(initial=0)), int(prices.max(initial=0))), sink)
    solver = SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        job.astype(np.int32), place.astype(np.int32), np.ones(len(job), np.int64), costs // unit
    )
    solver.add_arcs_with_capacity_and_unit_cost(
        (len(placed) + tails).astype(np.int32), np.full(len(tails), sink, np.int32), capacities, prices // unit
    )
    supplies = np.zeros(sink + 1, np.int64)
    supplies[: len(placed)], supplies[sink] = 1, -len(placed)
    solver.set_nodes_supplies(np.arange(sink + 1, dtype=np.int32), supplies)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise RuntimeError(f"OR-Tools found no flow for {len(placed)} jobs: {status}")
    chosen = np.flatnonzero(solver.flows(arcs))
    of_kind = given.kind.copy()
    of_kind[placed[job[chosen]]] = kind[chosen]
    counts = np.bincount(place[chosen] - len(placed), minlength=kinds * width).reshape(kinds, width)
    return plan(instance, of_kind, list(counts))


def _unit(largest: int, nodes: int) -> int:
    """The unit of costs for OR-Tools: 1 microsecond, unless the queue of a slot is years long."""
    unit = 1
    while largest // unit * (nodes + 1) >= _LARGEST:
        unit *= 2
    return unit


def _slots(instance: Instance, given: Plan, width: int) -> tuple[Ints, Ints, Ints]:
    """Position, capacity and price of each arc."""
    tails, capacities, prices = [], [], []
    for kind, slots in enumerate(instance.slots):
        counts = np.zeros(width, np.int64)
        counts[: len(given.counts[kind])] = given.counts[kind]
        steps = _steps(len(slots))
        # Bundles end at these numbers of slots, seen from each position's last slot.
        ends = np.clip(counts[:, None] + steps, 0, len(slots))
        begins, ends = ends[:, :-1], ends[:, 1:]
        some = begins < ends
        priced = np.where(ends <= counts[:, None], begins, ends - 1)[some]
        tails.append(np.nonzero(some)[0] + kind * width)
        capacities.append((ends - begins)[some])
        prices.append(slots[priced])
    return np.concatenate(tails), np.concatenate(capacities), np.concatenate(prices)


def _steps(slots: int) -> Ints:
    """Ends of bundles of slots: single ones near 0, larger ones further off, in both directions."""
    steps = list(range(_NEAR + 1))
    while steps[-1] < slots:
        steps.append(steps[-1] + max(steps[-1] // 4, 1))
    return np.array([-step for step in steps[:0:-1]] + steps)
