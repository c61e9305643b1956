"""The pools that a site names are the same in whatever order its nodes and their devices become known, as at a load."""

from itertools import permutations

import pytest

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.model import Node, NodeDevice, NodeState
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.values import Vector


def _row(node: int) -> Node:
    return Node(node, f"n{node}", "boot", NodeState.UP, Vector(4000, 4096, 2), (), 0)


def _devices(node: int, count: int) -> list[NodeDevice]:
    return [NodeDevice(node, i, f"{node}-{i}", "A100", 81920) for i in range(count)]


def _set(pools: Pools, node: int, count: int) -> None:
    pools.set_node(node, _row(node), _devices(node, count))


def _steps() -> list[tuple[tuple[int, int], ...]]:
    """Every order in which two nodes come to their two devices, one after the other."""
    each = [(node, count) for node in (1, 2) for count in (0, 1, 2)]
    return [order for order in permutations(each) if all([c for n, c in order if n == node] == [0, 1, 2] for node in (1, 2))]


@pytest.mark.parametrize("order", _steps(), ids=str)
@pytest.mark.parametrize("names", [("n1", "n2"), ("n2", "n1")], ids="-".join)
def test_whatever_becomes_known_first(names: tuple[str, str], order: tuple[tuple[int, int], ...]) -> None:
    plans = (PoolPlan("a100", names),)
    expected = Pools(plans)
    for node in (1, 2):
        _set(expected, node, 2)
    assert expected.misfits == {}
    pools = Pools(plans)
    for node, count in order:
        _set(pools, node, count)
    assert pools.snapshot() == expected.snapshot()
