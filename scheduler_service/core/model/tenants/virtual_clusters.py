"""Virtual clusters: what a tenant is guaranteed, what a job asks of cells, and which cells are whose."""

from enum import IntEnum
from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass, derived


class Guarantee(IntEnum):
    """In which cells a job may run. Values as in ebb.v1.Guarantee."""

    GUARANTEED = 1
    """In those that its virtual cluster owns; it waits for them."""
    OVERFLOW = 2
    """In those, or else meanwhile in anybody's idle ones."""
    OPPORTUNISTIC = 3
    """In anybody's idle ones, from which it goes when their owner wants them."""


class Within(NamedTuple):
    """Tasks that are to run together in one cell of a level."""

    level: str
    required: bool = True
    """False: only where that is possible now."""
    group: int = -1
    """Which of the gang's groups; -1: all tasks."""


class CellRequest(NamedTuple):
    """What a job asks of the cells that it runs in, beyond the devices of its tasks. What it names of them
    (`queue_keys.Named`) comes first."""

    pool: str = ""
    """Empty: any of its virtual cluster's."""
    model: str = ""
    """Of the devices; empty: any."""
    pin: str = ""
    """The pinned cell to run in; empty: none."""
    levels: tuple[str, ...] = ()
    """By group: each of its tasks has a whole cell of this level; empty: any devices of one node."""
    within: tuple[Within, ...] = ()
    lazy: bool = False
    """Where its own virtual cluster takes its cells away from it, it runs on as opportunistic until somebody needs them."""
    vacates: bool = False
    """Where its virtual cluster owns fewer cells than it did (it was made smaller, or what it took in exchange went back), the
    job saves its work and leaves, to wait for others; if not, it runs on as opportunistic."""


class Quota(NamedTuple):
    """So many cells of a level of a pool."""

    pool: str
    level: str
    cells: int


class Pin(NamedTuple):
    """One certain cell, which is a virtual cluster's alone and serves only the jobs that name it."""

    name: str
    pool: str
    level: str
    cell: int
    """Its number among the cells of its level in the pool."""


class VcPolicy(NamedTuple):
    """How a virtual cluster is scheduled inside."""

    name: str = "fifo"
    """fifo: in order. priority: and those of higher priority have others leave. fitgpp, lrtp, rand: and trials do."""
    s: float = 4.0
    cap: int = 1
    trials_in_flight: int | None = None
    proxy_after_us: int = 0
    """Cells that were idle for so long, without a break, are offered to other virtual clusters; 0: none are."""
    proxy_window_us: int = 0
    """For how long they are offered; 0: for as long as they must have been idle."""
    proxy_keep: int = 0
    """Idle cells of each kind that are not offered."""
    settings: tuple[tuple[str, float], ...] = ()
    """Settings that only this policy knows, by name; in the order of names. Others are as the policy has them."""


@dataclass(frozen=True)
class VirtualCluster:
    """A tenant's guarantee."""

    id: int
    name: str
    quotas: tuple[Quota, ...] = ()
    pins: tuple[Pin, ...] = ()
    weight: int = 1
    """Of its share of opportunistic cells, beside the others'."""
    policy: VcPolicy = VcPolicy()

    @derived
    def owner(self) -> "Owner":
        """Of its cells, but the pinned ones."""
        return Owner(self.id)


def quota_of(vc: VirtualCluster, pool: str, level: str) -> int:
    """How many cells of a kind are its own, whatever it has given or taken in exchange."""
    return sum(quota.cells for quota in vc.quotas if (quota.pool, quota.level) == (pool, level))


@dataclass(frozen=True)
class Binding:
    """A cell of a pool that is, for the time being or (pinned) for good, one of a virtual cluster's cells."""

    pool: str
    level: str
    index: int
    vc: int
    pin: str = ""


class Owner(NamedTuple):
    """Whose a bound cell is: a virtual cluster's, or (pinned) that of those of its jobs that name the pin."""

    vc: int
    pin: str = ""
