"""The stages of the policy that a site or a virtual cluster has chosen, by its name in the registry."""

from collections.abc import Mapping
from functools import lru_cache

from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.state.queue_order import OrderOf
from scheduler_service.policies import registry
from scheduler_service.policies.options import Options, PreemptionSettings
from scheduler_service.policies.placing.resume_placement import resuming_elsewhere
from scheduler_service.policies.stages import Stages


def stages(
    name: str,
    settings: PreemptionSettings,
    backfilled: bool = False,
    exchange: str = "balanced",
    promotes: bool = True,
    own: Mapping[str, float] | None = None,
) -> Stages:
    """The stages of a policy of the registry; `own` are settings that only this policy knows. Raises ValueError for a name that
    is not in it, and for settings that are unknown or out of range."""
    made = registry.factory(name)(Options(settings, backfilled, exchange, promotes, dict(own or {})))
    return made._replace(policy=resuming_elsewhere(made.policy, made.find))


def name_within(policy: VcPolicy) -> str:
    """The name of a virtual cluster's policy: fifo, if its policy no longer exists."""
    return policy.name if policy.name in registry.for_virtual_clusters() else "fifo"


@lru_cache(maxsize=256)
def stages_within(policy: VcPolicy) -> Stages:
    """The stages of a virtual cluster."""
    settings = PreemptionSettings(policy.s, policy.cap, policy.trials_in_flight)
    return stages(name_within(policy), settings, own=dict(policy.settings))


def order_of(site: Stages) -> OrderOf:
    """The order of each queue of a site with these stages: what a State is made with."""
    return lambda policy: site.order if policy is None else stages_within(policy).order
