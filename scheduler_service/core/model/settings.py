"""What the engine itself must know of the site's choices; policies have their own."""

from typing import NamedTuple

from scheduler_service.core.model.tenants.pool_plan import PoolPlan
from scheduler_service.core.model.values import SECOND, Micros


class Settings(NamedTuple):
    """Durations are in microseconds."""

    default_grace_us: Micros = 30 * SECOND
    """The grace period of jobs that name none."""
    grace_limit_us: Micros = 300 * SECOND
    """The longest grace period that a job gets because its saves take so long."""
    default_time_limits_us: tuple[Micros, Micros] = (0, 0)
    """The time limits of trials, and of best-effort jobs, that name none; 0: none."""
    longest_time_limits_us: tuple[Micros, Micros] = (0, 0)
    """The longest time limits that trials, and best-effort jobs, may have; 0: any, and none is needed."""
    earmark_ttl_us: Micros = 60 * SECOND
    """How long an earmark outlives the moment at which its last promised part became free."""
    aging_us: Micros = 0
    """How much waiting is worth a step of priority; 0: waiting is worth nothing."""
    min_run_us: Micros = 0
    """How long a run may not be preempted for a trial after its start."""
    gang_start_us: Micros = 60 * SECOND
    """In which all tasks of a gang must have started, from its placement."""
    retry_pause_us: Micros = SECOND
    """Before the first retry; each further one waits twice as long, 5 minutes at most."""
    fault_retries: int = 0
    """How often a run that vanished is tried again, whatever retries its job has: the fault was hardly its own."""
    blame_nodes: int = 3
    """A job that failed on so many nodes is not tried again; 0: no limit."""
    bad_node_strikes: int = 3
    """A node with so many strikes is drained; 0: never."""
    reclaim_grace_us: Micros = 30 * SECOND
    """The longest grace period of an opportunistic run whose devices somebody has a right to."""
    host_percent: int = 0
    """Percent of the CPUs and memory of a node with devices that belong to no device: they are for jobs without devices."""
    cpu_milli_per_device: int = 0
    """The CPU that goes with each device of a job that names none; 0: the device's share of its node."""
    memory_mib_per_device: int = 0
    """The same of memory."""
    default_jobs_per_device: int = 1
    """So many jobs that name neither CPUs nor memory find room with each device: as many as take turns on it."""
    history_rows: int = 0
    """Of how many scripts past runs are kept, for estimates of later ones; 0: of none."""
    device_memory_limit_percent: int = 92
    """The part of a device's memory that the members of a share group may use together."""
    parked_residue_mib: int = 512
    """What a parked run leaves on each of its devices, such as its context."""
    warm_limit_us: Micros = 300 * SECOND
    """In which the destination of a migration must be ready."""
    park_limit_us: Micros = 60 * SECOND
    """In which a node must have parked a run, or resumed it."""
    pack_other_users: bool = False
    """Whether packed jobs of several users may share a device. A fault of one may end the others."""
    pools: tuple[PoolPlan, ...] | None = None
    """A site of virtual clusters: the pools that it names, beside those that follow from its nodes. None: it has none."""


DEFAULTS = Settings()
