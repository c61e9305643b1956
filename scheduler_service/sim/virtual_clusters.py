"""The description of virtual clusters in a case, as data."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from scheduler_service.core.messages import VcRequested
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Quota, VcPolicy
from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.registry import for_virtual_clusters
from scheduler_service.sim.exchange import Exchange
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.nodes import node_name
from scheduler_service.sim.workloads.distributions import Model, pairs
from scheduler_service.sim.workloads.generated import Generated

Cells = Annotated[tuple[tuple[str, Annotated[int, Field(ge=0, le=10_000_000)]], ...], BeforeValidator(pairs)]
"""Numbers of cells by level."""


class VirtualCluster(Model):
    """A tenant and its guaranteed cells."""

    name: str = Field(min_length=1, max_length=64, description="as the workload's jobs call it")
    owns: Annotated[tuple[tuple[str, Cells], ...], BeforeValidator(pairs)] = Field(
        default=(), description="pool: {level: cells}; pools are named after their devices, such as gpu-8, or as `pools` says"
    )
    weight: int = Field(default=1, ge=1, le=1_000_000, description="of its share of others' idle cells")
    policy: Literal[tuple(for_virtual_clusters())] = Field(  # type: ignore[valid-type]  # a choice that the registry gives
        default="fifo", description="inside it"
    )
    settings: Annotated[tuple[tuple[str, float], ...], BeforeValidator(pairs)] = Field(
        default=(), description="that only its policy knows: {threshold: 7200} of las"
    )

    @model_validator(mode="after")
    def _check_settings(self) -> "VirtualCluster":
        if self.settings:
            stages(self.policy, PreemptionSettings(), own=dict(self.settings))
        return self

    def creation_request(self, exchange: Exchange | None = None) -> VcRequested:
        quotas = tuple(Quota(pool, level, count) for pool, levels in self.owns for level, count in levels)
        policy = VcPolicy(self.policy, settings=tuple(sorted(self.settings)))
        return VcRequested(
            self.name, True, quotas, weight=self.weight, policy=policy if exchange is None else exchange.proxy(policy)
        )


class Above(Model):
    """A level above nodes."""

    name: str = Field(min_length=1, max_length=32)
    of: int = Field(ge=1, le=100_000, description="how many cells of the level below make one")


class Pool(Model):
    """A pool that is named, instead of derived from its nodes."""

    name: str = Field(min_length=1, max_length=64)
    first: int = Field(ge=1, le=1_000_000, description="number of its first node; nodes count from 1")
    last: int = Field(ge=1, le=1_000_000)
    levels: tuple[Above, ...] = Field(default=(), description="above the node, from below: racks, pods")

    def plan(self) -> PoolPlan:
        nodes = tuple(node_name(number) for number in range(self.first, self.last + 1))
        return PoolPlan(self.name, nodes, tuple((level.name, level.of) for level in self.levels))


def check_pools(pools: Sequence[Pool], nodes: int) -> None:
    """Raises ValueError for invalid pools, as the scheduler does."""
    for pool in pools:
        levels, count = ["device", "node", *(level.name for level in pool.levels)], pool.last - pool.first + 1
        twice = next((name for name in levels if levels.count(name) > 1), None)
        if not pool.first <= pool.last <= nodes:
            raise ValueError(f"pools: {pool.name} is of the nodes {pool.first} to {pool.last}, and there are 1 to {nodes}")
        if twice is not None:
            raise ValueError(f"pools: two levels of {pool.name} are called {twice!r}")
        if count % (each := prod(level.of for level in pool.levels)):
            whole = f"whole cells of the level {levels[-1]}, which has {each}"
            raise ValueError(f"pools: the {count} nodes of {pool.name} do not make {whole}")
    for one, next_one in pairwise(sorted(pools, key=lambda pool: pool.first)):
        if next_one.first <= one.last:
            raise ValueError(f"pools: node {next_one.first} is in {one.name} and in {next_one.name}")
    names = [pool.name for pool in pools]
    if same := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"pools: two are called {same!r}")


def of_known(jobs: Iterable[SimJob], names: Sequence[str]) -> Iterator[SimJob]:
    """Yield the jobs. Raises ValueError at a job whose virtual cluster is not among the names."""
    known = frozenset(names)
    for number, job in enumerate(jobs, 1):
        if job.vc not in known:
            when = f" at {job.submit_us / SECOND:g} s" if job.submit_us else ""
            raise _unknown(f"job {number} of the workload, of {job.user}{when},", job.vc, names)
        yield job


def check_users(workload: Generated, names: Sequence[str]) -> None:
    """Raises ValueError at a user whose virtual cluster is not among the names: some seed draws a job of that user."""
    for number, kind in enumerate(workload.kinds):
        for user in kind.users:
            if user.weight and user.vc not in names:
                raise _unknown(f"workload.kinds.{number}.users: {user.name}", user.vc, names)


def _unknown(who: str, vc: str, names: Sequence[str]) -> ValueError:
    which = f"names the virtual cluster {vc!r}" if vc else "names no virtual cluster"
    return ValueError(f"virtual_clusters: {who} {which}; there are {', '.join(names)}")


def at_submit(guarantee: Guarantee, policy: str) -> Callable[[SimJob], SimJob]:
    """A function that assigns a job to its virtual cluster, with this guarantee.

    If quotas are numbers of devices, guaranteed jobs ask for overflow, and the policy lets them wait for their quota
    (`by_count`): cells of one device never guarantee two devices on one node, so the scheduler would refuse guaranteed jobs of
    several devices.
    """
    asked = Guarantee.OVERFLOW if policy == "quota" and guarantee is Guarantee.GUARANTEED else guarantee
    return lambda job: job._replace(spec=with_changes(job.spec, vc=job.vc, guarantee=asked))
