"""The setting `pools`: which nodes make a pool, and how they are grouped above the node."""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from scheduler_service.core.model.settings import PoolPlan

_RESERVED = ("device", "node")
"""Levels that every pool has by itself."""


class LevelConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$", description="what a cell of the level is called")
    of: int = Field(ge=1, description="how many cells of the level below make one")


class PoolConfig(BaseModel):
    """A pool as a file has it: `nodes` flat, with `levels` of {name, of}; or grouped in lists, with the names of the levels."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    nodes: list[str] = Field(min_length=1, description="names, neighbours first")
    levels: list[LevelConfig] = Field([], description="those above the node, from below")

    @model_validator(mode="before")
    @classmethod
    def _ungroup_nodes(cls, given: Any) -> Any:
        """Nodes in lists of lists say by themselves how many of each level make one of the next."""
        if not isinstance(given, dict) or not any(isinstance(node, list) for node in given.get("nodes") or ()):
            return given
        nodes, fans = _flat(given["nodes"])
        names = given.get("levels") or []
        if len(names) != len(fans):
            raise ValueError(
                f"pool {given.get('name')}: its nodes are grouped {len(fans)} deep, so `levels` must have {len(fans)} names, "
                f"from below, such as [rack]; it has {names!r}"
            )
        if any(isinstance(name, dict) and "of" in name for name in names):
            raise ValueError(f"pool {given.get('name')}: nodes in groups say themselves how many make a level; leave out `of`")
        named = [name["name"] if isinstance(name, dict) and set(name) == {"name"} else name for name in names]
        return {**given, "nodes": nodes, "levels": [{"name": name, "of": fan} for name, fan in zip(named, fans, strict=True)]}

    @field_validator("levels")
    @classmethod
    def _check_distinct(cls, levels: list[LevelConfig]) -> list[LevelConfig]:
        names = [level.name for level in levels]
        for name in names:
            if name in _RESERVED or names.count(name) > 1:
                raise ValueError(f"{name!r} is the name of another level already")
        return levels

    @model_validator(mode="after")
    def _check_whole_cells(self) -> "PoolConfig":
        each = prod(level.of for level in self.levels)
        if len(self.nodes) % each:
            raise ValueError(
                f"pool {self.name}: its {len(self.nodes)} nodes do not make whole cells of the level {self.levels[-1].name}, "
                f"which has {each}"
            )
        return self

    def plan(self) -> PoolPlan:
        return PoolPlan(self.name, tuple(self.nodes), tuple((level.name, level.of) for level in self.levels))


def check_pools(pools: Sequence[PoolConfig]) -> None:
    """Raises ValueError where two say different things of one name."""
    for what, names in (
        ("pool", [pool.name for pool in pools]),
        ("node", [node for pool in pools for node in pool.nodes]),
    ):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"pools: {what} {twice[0]} is there twice; a {what} has one place")


def _flat(groups: list[Any]) -> tuple[list[Any], list[int]]:
    """The nodes in order, and how many of each level make one of the next, from below. Above the last groups there is nothing
    to count: the outermost list is the pool."""
    inner = [group if isinstance(group, list) else None for group in groups]
    if all(group is None for group in inner):
        return groups, []
    sizes = {len(group) for group in inner if group is not None}
    if None in inner or len(sizes) > 1:
        raise ValueError(f"nodes: the groups of a level must be equal, and {groups!r} are not")
    nodes, fans = _flat([node for group in inner if group is not None for node in group])
    return nodes, [*fans, sizes.pop()]
