"""A pool as a site describes it."""

from typing import NamedTuple


class PoolPlan(NamedTuple):
    """A pool as a site describes it."""

    name: str
    nodes: tuple[str, ...]
    """In the order of their places: neighbours first."""
    levels: tuple[tuple[str, int], ...] = ()
    """Those above the node, from below: what a cell is called, and how many of the level below make one."""
