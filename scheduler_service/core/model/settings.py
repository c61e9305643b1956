"""Site settings that the engine itself needs, with the pools as a site describes them; policies have their own."""

from typing import NamedTuple

from scheduler_service.core.model.values import SECOND, Micros


class PoolPlan(NamedTuple):
    """A pool as a site describes it."""

    name: str
    nodes: tuple[str, ...]
    """In the order of their positions, so that neighbors follow each other."""
    levels: tuple[tuple[str, int], ...] = ()
    """Levels above the node, lowest first: the name of a cell, and how many cells of the level below make one."""


class Settings(NamedTuple):
    """Settings of the engine. Durations are in microseconds."""

    default_grace_us: Micros = 30 * SECOND
    """The grace period of jobs that specify none."""
    grace_limit_us: Micros = 300 * SECOND
    """The longest grace period that a job can get because of how long its saves take."""
    default_time_limits_us: tuple[Micros, Micros] = (0, 0)
    """The time limits of trials, and of best-effort jobs, that specify none; 0: no limit."""
    longest_time_limits_us: tuple[Micros, Micros] = (0, 0)
    """The longest time limits that trials, and best-effort jobs, may have; 0: any, and a job needs none."""
    earmark_ttl_us: Micros = 60 * SECOND
    """How long an earmark is kept after its last promised part became free."""
    aging_us: Micros = 0
    """Waiting time that raises a job's priority by 1; 0 disables aging."""
    min_run_us: Micros = 0
    """Time after its start during which a run may not be preempted for a trial."""
    gang_start_us: Micros = 60 * SECOND
    """Time from its placement within which all tasks of a gang must have started."""
    retry_pause_us: Micros = SECOND
    """Pause before the first retry; each further one waits twice as long, 5 minutes at most."""
    fault_retries: int = 0
    """Minimum number of retries after a run vanished, whatever the job allows: it was hardly the job's fault."""
    blame_nodes: int = 3
    """A job that has failed on this many nodes is not retried; 0: no limit."""
    bad_node_strikes: int = 3
    """Number of strikes at which a node is drained; 0: never. Each fault of the node's own is a strike; other failures are one
    strike for each user."""
    reclaim_grace_us: Micros = 30 * SECOND
    """The longest grace period of an opportunistic run whose devices are reclaimed."""
    host_percent: int = 0
    """Percentage of the CPUs and memory of nodes with devices that belongs to no device: it is for jobs without devices."""
    cpu_milli_per_device: int = 0
    """CPU for each device of a job that requests none; 0: the device's share of its node."""
    memory_mib_per_device: int = 0
    """Host memory for each device of a job that requests none; 0: the device's share of its node."""
    default_jobs_per_device: int = 1
    """How many jobs that request neither CPUs nor memory fit with each device: as many as take turns on it."""
    history_rows: int = 0
    """Number of scripts whose past runs are kept, for estimates of later ones; 0: none."""
    device_memory_limit_percent: int = 92
    """Percentage of a device's memory that the members of a share group may use together."""
    parked_residue_mib: int = 512
    """Memory that a parked run leaves on each of its devices, such as its context."""
    warm_limit_us: Micros = 300 * SECOND
    """Time within which the destination of a migration must be ready."""
    park_limit_us: Micros = 60 * SECOND
    """Time within which a node must have parked a run, or resumed it."""
    pack_other_users: bool = False
    """Whether packed jobs of several users may share a device. A fault in one of them may end the others."""
    pools: tuple[PoolPlan, ...] | None = None
    """Pools that a site with virtual clusters names, besides those that follow from its nodes; None: no virtual clusters."""


DEFAULTS = Settings()
