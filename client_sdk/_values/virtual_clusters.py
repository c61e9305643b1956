"""Virtual clusters: the guarantees of tenants, the cell requests of jobs, and the owners and users of cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.enums import DeviceUse, PinState


@dataclass(frozen=True, slots=True)
class Within:
    """A request that tasks run together in one cell of a level."""

    level: str
    preferred: bool = False
    """Run them together if that is possible now. If False, the job waits until it is."""
    task_group: int | None = None
    """The tasks of one group, counted from 0; None means all tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """Requirements of a job for its cells, in addition to its tasks' devices. Empty fields impose none."""

    pool: str = ""
    model: str = ""
    """The model of the devices."""
    pin: str = ""
    """The name of the pinned cell of its virtual cluster in which it runs."""
    level: str = ""
    """For a job without task groups: the level of the whole cell that it gets."""
    within: tuple[Within, ...] = ()
    lazy: bool = False
    """If its own virtual cluster takes its cells back, keep running as an opportunistic job until they are reclaimed."""
    vacates: bool = False
    """If its virtual cluster loses cells, such as at the end of an exchange, save, stop and wait for other cells; False: keep
    running as an opportunistic job."""


@dataclass(frozen=True, slots=True)
class CellQuota:
    """A number of cells of a level of a pool, such as `CellQuota("a100", "node", 2)`."""

    pool: str
    level: str
    cells: int


@dataclass(frozen=True, slots=True)
class PinnedCell:
    """A specific cell, used only by those jobs of its virtual cluster that name it."""

    name: str
    pool: str
    level: str
    index: int
    """Its number among the cells of its level in the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualClusterPolicy:
    """The scheduling policy of a virtual cluster. None means the site's value, or in an update: unchanged."""

    name: str | None = None
    """"fifo", "priority", "las", "fair", "allox", or one that preempts for trials: "fitgpp", "lrtp", "rand"."""
    s: float | None = None
    """FitGpp's weight of the grace period relative to the size, in its score (Eqn 3)."""
    cap: int | None = None
    """FitGpp's P (Eqn 4): the maximum number of times that a job is preempted for trials."""
    trials_in_flight: int | None = None
    """The maximum number of trials that wait for their victims at the same time; 0 means any number."""
    proxy_after: timedelta | None = None
    """After cells were idle for this time without interruption, its proxy offers them to others; 0 disables the proxy."""
    proxy_window: timedelta | None = None
    """How long its proxy offers them; 0 means as long as they must have been idle."""
    proxy_keep: int | None = None
    """The number of idle cells of each kind that are not offered."""
    settings: Mapping[str, float] | None = None
    """Settings that are specific to the policy, by name, such as {"threshold": 7200} for las. In an update that names a policy,
    they replace all of its settings; those not given get their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUse:
    """The cells of one level that a virtual cluster owns, by their state."""

    pool: str
    level: str
    owned: int
    """The cells that it owns now: its quota, plus cells taken and minus cells given in exchanges."""
    bound: int = 0
    """Cells that are bound to physical cells, because guaranteed runs use them."""
    free: int = 0
    """Cells that are not bound and are available."""
    faulty: int = 0
    """Cells that are not bound and are unavailable, because too many devices are faulty."""
    taken: int = 0
    """Cells of other virtual clusters that it has now, through exchanges."""
    given: int = 0
    """Cells of its own that others have now."""


@dataclass(frozen=True, slots=True)
class PinFault:
    """The reason why a pinned cell is partly or entirely unavailable."""

    node: str
    """Empty: the cell no longer exists."""
    devices: tuple[int, ...]
    """Indices of the devices on the node; empty: the entire node."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PinUse:
    """The state of a pinned cell."""

    name: str
    """The name of the pin."""
    state: PinState
    devices: int = 0
    """The number of its devices; in a pool without devices: of its CPUs."""
    held: int = 0
    """The number of these that guaranteed runs hold or that are earmarked for them."""
    faults: tuple[PinFault, ...] = ()
    """Its unavailable parts, even while it is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemotedRun:
    """A run that lost its guarantee. It keeps running as opportunistic, or stops if its job requests that."""

    job_id: int
    run: int
    virtual_cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualCluster:
    """A tenant's guarantee, and its current use."""

    name: str
    quotas: tuple[CellQuota, ...] = ()
    pins: tuple[PinnedCell, ...] = ()
    weight: int = 1
    """Weight when idle cells are shared between virtual clusters: with 2 it gets twice as much as with 1."""
    policy: VirtualClusterPolicy = VirtualClusterPolicy()
    cells: tuple[CellUse, ...] = ()
    """Its cells by pool and level, largest level first, without pinned cells."""
    opportunistic_devices: int = 0
    """The number of devices that its opportunistic runs hold now."""
    pin_uses: tuple[PinUse, ...] = ()
    """The states of its pinned cells, in the order of `pins`."""
    demoted: tuple[DemotedRun, ...] = ()
    """The runs that lose their guarantee; only in the answers to a create and an update."""


# ---- the cells themselves ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLevel:
    """A level of a pool's tree."""

    name: str
    fan: int
    """The number of cells of the level below in each cell."""
    cells: int = 0
    owned: int = 0
    """The number of cells that all virtual clusters together own."""
    free: int = 0
    """The number of healthy, unbound cells that are not part of a larger such cell."""
    missing: int = 0
    """The number of cells that virtual clusters own, have not bound, and could not get now, because devices are faulty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCell:
    """A cell that is bound to a virtual cluster now."""

    level: str
    index: int
    virtual_cluster: str
    pin: str = ""
    """The name of the pin, if the cell is pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCell:
    """A device and its use."""

    index: int
    """Its index on its node."""
    use: DeviceUse
    virtual_cluster: str = ""
    """The virtual cluster of the run that holds it, or of the job for which it is earmarked."""
    job_ids: tuple[int, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCells:
    """A node of a pool."""

    node: str
    index: int
    """Its number among the cells of its level."""
    devices: tuple[DeviceCell, ...] = ()
    """Its devices, in the order of the tree."""
    closed: str = ""
    """Why nothing new is placed on it; empty if it is open."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node that the site assigns to a pool and that differs from the pool's other nodes: nothing is placed on it."""

    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedCells:
    """Cells of one virtual cluster that another one has now."""

    exchange_id: int
    level: str
    cells: int
    giver: str
    taker: str
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A set of identical nodes, so that all cells of one level are interchangeable."""

    name: str
    model: str = ""
    """The model of its devices; empty if it has none."""
    levels: tuple[CellLevel, ...] = ()
    """Levels from the devices up. Cell i of a level is in cell i // fan of the level above, with that level's `fan`."""
    node_level: int = 0
    cells: tuple[BoundCell, ...] = ()
    nodes: tuple[NodeCells, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    exchanged: tuple[ExchangedCells, ...] = ()
    """Its cells that are exchanged now."""
