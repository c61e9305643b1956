"""In which order a gang's task tries the places that there are: as defined, though hardly any of them is looked at."""

from collections.abc import Mapping
from random import Random

import pytest

from scheduler_service.core.cells.available_units import AvailableUnits
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask
from tests.core.cells import P100, to_bind

ME, OTHER = Owner(1), Owner(2)
SHAPES = (
    P100,
    Shape(("device", "switch", "node", "pair", "rack"), (1, 2, 2, 2, 3), 2),
    Shape(("device", "node", "rack"), (1, 4, 4), 1),
)


def used_pool(shape: Shape, rng: Random) -> tuple[Pool, range]:
    """Cells of every level are bound, some to another, and guaranteed runs hold some of each; some devices are faulty."""
    pool, slots = Pool(shape, "p"), range(12)
    for slot in slots:
        pool.set_node(slot, (1 << shape.devices) - 1 & ~(rng.getrandbits(shape.devices) if rng.random() < 0.1 else 0))
    for _ in range(rng.randrange(2, 20)):
        owner, level = rng.choice((ME, ME, OTHER)), rng.randrange(len(shape.fan))
        pool.set_quota(owner, level, pool.promises.count_owned(owner, level) + 1)
        index = to_bind(pool, owner, level)
        if index is not None:
            pool.bind(level, index, owner)
    for slot in slots:
        if rng.random() < 0.7:
            pool.set_guaranteed(slot, rng.getrandbits(shape.devices) & pool.bound_at(slot))
    return pool, slots


def by_definition(
    pool: Pool, gone: Mapping[int, Mask], taken: Mapping[int, Mask], slots: range, leaves: int
) -> list[tuple[int, Mask]]:
    """All units that have so many leaves: the tightest first, then the nearest to the tasks that have a place, by address."""
    fan, node, seated = pool.shape.fan, pool.shape.node, [slot for slot, mask in taken.items() if mask]

    def distance(slot: int) -> int:
        nodes, near = 1, [len(fan)]
        for level in range(node, len(fan)):
            nodes *= fan[level] if level > node else 1
            near += [level for other in seated if other // nodes == slot // nodes]
        return min(near)

    found = []
    for slot in slots:
        for mask, owner in pool.units_at(slot).items():
            held = pool.held_leaves(slot)[0] & ~gone.get(slot, 0) | taken.get(slot, 0)
            available = pool.healthy(slot) & mask & ~held
            if owner == ME and available.bit_count() >= leaves:
                found.append((available.bit_count(), distance(slot), slot, available))
    return [(slot, available) for _, _, slot, available in sorted(found)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gone", [False, True])
def test_places_are_tried_in_the_order_of_the_definition(shape: Shape, gone: bool) -> None:
    """Also where cells are bound and unbound while one of them is looked at, as further tasks do."""
    rng, most = Random(shape.devices), 0
    for _ in range(60):
        pool, slots = used_pool(shape, rng)
        leaving = {
            slot: pool.held_leaves(slot)[0] & rng.getrandbits(shape.devices) for slot in slots if gone and rng.random() < 0.3
        }
        units = AvailableUnits(pool, ME, leaving, several=True)
        for slot in rng.sample(slots, rng.randrange(4)):
            if mask := pool.available(slot, pool.bound_at(slot)) & rng.getrandbits(shape.devices):
                units.take_leaves(slot, mask)
        for leaves in range(1, shape.devices + 1):
            expected, tried = by_definition(pool, leaving, units.taken, slots, leaves), []
            for place in units.tightest(leaves, None):
                tried.append(place)
                for level, counts in enumerate(pool.counts):
                    if counts and (index := to_bind(pool, ME, level)) is not None:
                        pool.bind(level, index, ME)
                        pool.units(ME)
                        pool.unbind(level, index)
            assert tried == expected
            most = max(most, len(tried))
    assert most > 5
