"""Virtual clusters: what a tenant is guaranteed, what jobs require of cells, and who owns which cells."""

from enum import IntEnum
from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass, derived


class Guarantee(IntEnum):
    """The cells in which a job may run. Values as in ebb.v1.Guarantee."""

    GUARANTEED = 1
    """Only cells that its virtual cluster owns; it waits for them."""
    OVERFLOW = 2
    """Cells that its virtual cluster owns, or any idle cells until those are available."""
    OPPORTUNISTIC = 3
    """Any idle cells; they are reclaimed when their owner needs them."""


class Within(NamedTuple):
    """Tasks that are to run together in one cell of a level."""

    level: str
    required: bool = True
    """False: only if that is possible now."""
    group: int = -1
    """Which of the gang's groups; -1: all tasks."""


class CellRequest(NamedTuple):
    """Requirements of a job on its cells, beyond the devices of its tasks. The fields of `queue_keys.Named` come first."""

    pool: str = ""
    """Empty: any pool of its virtual cluster."""
    model: str = ""
    """Model of the devices; empty: any."""
    pin: str = ""
    """The pinned cell to run in; empty: none."""
    levels: tuple[str, ...] = ()
    """Level of the whole cell that each task gets, by group; empty: any devices of one node."""
    within: tuple[Within, ...] = ()
    lazy: bool = False
    """If its own virtual cluster takes its cells back, it keeps running as an opportunistic job until they are needed."""
    vacates: bool = False
    """If its virtual cluster loses cells (its quota was reduced, or cells taken in exchange went back), the job saves its work,
    stops and waits. False: it keeps running as an opportunistic job."""


class Quota(NamedTuple):
    """A number of cells of one level of a pool."""

    pool: str
    level: str
    cells: int


class Pin(NamedTuple):
    """A specific cell that belongs to one virtual cluster and serves only the jobs that name it."""

    name: str
    pool: str
    level: str
    cell: int
    """Its number among the cells of its level in the pool."""


class VcPolicy(NamedTuple):
    """How the jobs inside a virtual cluster are scheduled."""

    name: str = "fifo"
    """A policy that virtual clusters can choose, such as fifo (in order; none is preempted), priority (jobs of higher priority
    preempt others) or fitgpp (trials preempt others)."""
    s: float = 4.0
    cap: int = 1
    trials_in_flight: int | None = None
    proxy_after_us: int = 0
    """Time without a break after which idle cells are offered to other virtual clusters; 0: none are offered."""
    proxy_window_us: int = 0
    """For how long they are offered; 0: for as long as they must have been idle."""
    proxy_keep: int = 0
    """Idle cells of each kind that are not offered."""
    settings: tuple[tuple[str, float], ...] = ()
    """Settings that only this policy has, in order of names; the others keep the policy's defaults."""


@dataclass(frozen=True)
class VirtualCluster:
    """A tenant's guarantee."""

    id: int
    name: str
    quotas: tuple[Quota, ...] = ()
    pins: tuple[Pin, ...] = ()
    weight: int = 1
    """Weight when idle cells are shared between virtual clusters."""
    policy: VcPolicy = VcPolicy()

    @derived
    def owner(self) -> "Owner":
        """The owner of its cells, except pinned ones."""
        return Owner(self.id)


def quota_of(vc: VirtualCluster, pool: str, level: str) -> int:
    """Return how many cells of a kind the virtual cluster owns, regardless of what it has given or taken in exchange."""
    return sum(quota.cells for quota in vc.quotas if (quota.pool, quota.level) == (pool, level))


@dataclass(frozen=True)
class Binding:
    """A cell of a pool that belongs to a virtual cluster, for the time being or (pinned) permanently."""

    pool: str
    level: str
    index: int
    vc: int
    pin: str = ""


class Owner(NamedTuple):
    """The owner of a bound cell: a virtual cluster or, if pinned, those of its jobs that name the pin."""

    vc: int
    pin: str = ""
