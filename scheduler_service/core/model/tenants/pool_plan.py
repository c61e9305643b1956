"""Pools as a site describes them."""

from typing import NamedTuple


class PoolPlan(NamedTuple):
    """A pool as a site describes it."""

    name: str
    nodes: tuple[str, ...]
    """In the order of their positions, so that neighbors follow each other."""
    levels: tuple[tuple[str, int], ...] = ()
    """Levels above the node, lowest first: the name of a cell, and how many cells of the level below make one."""
