"""Build the settings of the engine and its policy from those of the service."""

from collections.abc import Mapping

from scheduler_service.config import Config, TimeLimited
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.policies import registry
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages

HISTORY_ROWS = 5_000
"""Scripts whose past runs are kept, for policies that learn from them."""
TURNS = 2
"""Jobs that a policy by which jobs take turns expects on a device, if they name neither CPUs nor memory."""


def stages_of(config: Config) -> Stages:
    """Return the policy stages. Each virtual cluster has its own policy; the site's is the default (see `vc_policy_of`)."""
    if config.virtual_clusters:
        return stages("cells", PreemptionSettings(), exchange=config.exchange)
    settings = PreemptionSettings(config.fitgpp_s, config.fitgpp_cap, config.fitgpp_trials_in_flight)
    return stages(config.policy, settings, config.backfill, own=config.policy_settings)


def settings_of(config: Config) -> Settings:
    """The part of the settings that the engine itself needs."""
    return Settings(
        default_grace_us=micros(config.default_grace),
        grace_limit_us=micros(config.grace_limit),
        default_time_limits_us=_by_class(config.default_time_limit),
        longest_time_limits_us=_by_class(config.longest_time_limit),
        earmark_ttl_us=micros(config.earmark_ttl),
        aging_us=micros(config.aging),
        min_run_us=micros(config.min_run),
        gang_start_us=micros(config.gang_start),
        park_limit_us=micros(config.park_limit),
        retry_pause_us=micros(config.retry_pause),
        fault_retries=config.fault_retries,
        blame_nodes=config.blame_nodes,
        bad_node_strikes=config.bad_node_strikes,
        reclaim_grace_us=micros(config.reclaim_grace),
        host_percent=config.host_percent,
        cpu_milli_per_device=round(config.cpus_per_device * 1000),
        memory_mib_per_device=config.memory_per_device >> 20,
        default_jobs_per_device=TURNS if config.policy == "gandiva" and not config.virtual_clusters else 1,
        history_rows=HISTORY_ROWS if stages_of(config).learns else 0,
        device_memory_limit_percent=config.device_memory_limit_percent,
        parked_residue_mib=config.parked_residue_mib,
        pack_other_users=config.pack_other_users,
        pools=tuple(pool.plan() for pool in config.pools) if config.virtual_clusters else None,
    )


def vc_policy_of(config: Config) -> VcPolicy:
    """Return the policy of virtual clusters that name none: the site's if it can serve virtual clusters, or fifo."""
    name = config.policy if config.policy in registry.for_virtual_clusters() else "fifo"
    own = tuple(sorted(config.policy_settings.items())) if name == config.policy else ()
    return VcPolicy(name, config.fitgpp_s, config.fitgpp_cap, config.fitgpp_trials_in_flight, settings=own)


def _by_class(seconds: Mapping[TimeLimited, float]) -> tuple[int, int]:
    """Return the limits of trials and of best-effort jobs, in microseconds; 0 if not given."""
    return micros(seconds.get("trial", 0)), micros(seconds.get("best-effort", 0))


def micros(seconds: float) -> int:
    """Convert a setting in seconds to microseconds."""
    return round(seconds * 1_000_000)
