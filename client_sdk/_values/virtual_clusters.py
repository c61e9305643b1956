"""Virtual clusters: what tenants are guaranteed, what jobs ask of cells, and whose the cells are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.enums import DeviceUse, PinState


@dataclass(frozen=True, slots=True)
class Within:
    """Tasks that are to run together in one cell of a level."""

    level: str
    preferred: bool = False
    """Only where that is possible now; else the job waits for it."""
    task_group: int | None = None
    """The tasks of one group, counted from 0; None means all tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """What a job asks of the cells that it runs in, beyond the devices of its tasks. What is empty is left open."""

    pool: str = ""
    model: str = ""
    """Of the devices."""
    pin: str = ""
    """The pinned cell of its virtual cluster to run in."""
    level: str = ""
    """For a job without task groups: it has a whole cell of this level."""
    within: tuple[Within, ...] = ()
    lazy: bool = False
    """Where a job of its own virtual cluster takes its cells, it runs on as opportunistic until somebody needs them."""
    vacates: bool = False
    """Where its virtual cluster owns fewer cells than it did, as when what it took in exchange went back, it saves its work and
    leaves, to wait for others; if not, it runs on as opportunistic."""


@dataclass(frozen=True, slots=True)
class CellQuota:
    """So many cells of a level of a pool, such as `CellQuota("a100", "node", 2)`."""

    pool: str
    level: str
    cells: int


@dataclass(frozen=True, slots=True)
class PinnedCell:
    """One certain cell: it serves only those jobs of its virtual cluster that name it."""

    name: str
    pool: str
    level: str
    index: int
    """Its number among the cells of its level in the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualClusterPolicy:
    """How a virtual cluster is scheduled inside. None is as the site has it, or in an update as it was."""

    name: str | None = None
    """"fifo", "priority", "las", "fair", "allox", or one that preempts for trials: "fitgpp", "lrtp", "rand"."""
    s: float | None = None
    """Of FitGpp's score (Eqn 3): how much a grace period weighs beside the size."""
    cap: int | None = None
    """P of FitGpp (Eqn 4): how often a job may be preempted for trials."""
    trials_in_flight: int | None = None
    """How many trials may wait for their victims at once; 0 means any number."""
    proxy_after: timedelta | None = None
    """Cells that were idle for so long, without a break, are offered to others by its proxy; 0 turns that off."""
    proxy_window: timedelta | None = None
    """For how long its proxy offers them."""
    """For how long they are offered; 0 means for as long as they must have been idle."""
    proxy_keep: int | None = None
    """Idle cells of each kind that are not offered."""
    settings: Mapping[str, float] | None = None
    """Settings that only this policy knows, by name, such as {"threshold": 7200} of las. In an update that names a policy they
    are all that it has beside its defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUse:
    """How the cells of one level stand that a virtual cluster owns."""

    pool: str
    level: str
    owned: int
    """Now: its quota, with what it has taken in exchange and without what it has given."""
    bound: int = 0
    """To physical cells, because guaranteed runs are inside."""
    free: int = 0
    """Not bound, and to be had."""
    faulty: int = 0
    """Not bound, and not to be had, because too many devices are faulty."""
    taken: int = 0
    """Others' cells that it has in exchange now."""
    given: int = 0
    """Its own that others have."""


@dataclass(frozen=True, slots=True)
class PinFault:
    """What keeps part of a pinned cell, or all of it, from use."""

    node: str
    """Empty: there is no such cell any more."""
    devices: tuple[int, ...]
    """As the node counts its devices; empty: all of the node."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PinUse:
    """How a pinned cell stands."""

    name: str
    """The pin's."""
    state: PinState
    devices: int = 0
    """How many are in it; in a pool without devices: CPUs."""
    held: int = 0
    """Of these: held by guaranteed runs, or kept for them."""
    faults: tuple[PinFault, ...] = ()
    """What of it cannot be had, also where it is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemotedRun:
    """A run that is guaranteed no longer. It runs on as opportunistic, or leaves if its job asks for that."""

    job_id: int
    run: int
    virtual_cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualCluster:
    """A tenant's guarantee, and how it stands."""

    name: str
    quotas: tuple[CellQuota, ...] = ()
    pins: tuple[PinnedCell, ...] = ()
    weight: int = 1
    """In the fair sharing of idle cells: with 2 it gets twice of what it gets with 1."""
    policy: VirtualClusterPolicy = VirtualClusterPolicy()
    cells: tuple[CellUse, ...] = ()
    """By pool and level, the largest first; pinned cells are not among them."""
    opportunistic_devices: int = 0
    """How many devices its opportunistic runs hold now."""
    pin_uses: tuple[PinUse, ...] = ()
    """How its pinned cells stand, in the order of `pins`."""
    demoted: tuple[DemotedRun, ...] = ()
    """Only in the answers to a create and an update: the runs that lose their guarantee by it."""


# ---- the cells themselves ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLevel:
    """A level of a pool's tree."""

    name: str
    fan: int
    """How many cells of the level below make one."""
    cells: int = 0
    owned: int = 0
    """By all virtual clusters together."""
    free: int = 0
    """Healthy, bound to nobody, and not part of a larger such cell."""
    missing: int = 0
    """Cells that virtual clusters own, have not bound, and could not get now, because devices are faulty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCell:
    """A cell that is somebody's now."""

    level: str
    index: int
    virtual_cluster: str
    pin: str = ""
    """Its name where it is pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCell:
    """A device, and how it is held."""

    index: int
    """As its node counts its devices."""
    use: DeviceUse
    virtual_cluster: str = ""
    """Of the run that holds it, or of the job for which it is kept."""
    job_ids: tuple[int, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCells:
    """A node of a pool."""

    node: str
    index: int
    """Its number among the cells of its level."""
    devices: tuple[DeviceCell, ...] = ()
    """In the order of the tree."""
    closed: str = ""
    """Why nothing new is placed on it; empty for one that is open."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node that the site counts to a pool and that is not like its others: nothing is placed on it."""

    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedCells:
    """Cells of one virtual cluster that another has now."""

    exchange_id: int
    level: str
    cells: int
    giver: str
    taker: str
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes that are alike, so that all cells of one level are interchangeable."""

    name: str
    model: str = ""
    """Of its devices; empty where it has none."""
    levels: tuple[CellLevel, ...] = ()
    """From the devices up. Cell i of a level is inside cell i // fan of the level above, where fan is that one's."""
    node_level: int = 0
    cells: tuple[BoundCell, ...] = ()
    nodes: tuple[NodeCells, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    exchanged: tuple[ExchangedCells, ...] = ()
    """The exchanges of its cells that are under way."""
