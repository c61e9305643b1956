"""Jobs that may run on devices or on CPUs, and a site that has one node for each."""

from random import Random
from typing import Any

from scheduler_service.core.model import (
    Configuration,
    JobSpec,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import Vector
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.explain.explanation import Explanation
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, spec
from tests.policies.made import fitgpp

LARGE, SMALL = Vector(3_000, 65_536, 8), Vector(4_000, 8_192, 0)
"""A node with devices and few CPUs, and one without devices."""


def on_cpus(cpu: int = 4, **more: Any) -> Configuration:
    return Configuration(Vector(1_000 * cpu, 1024), **more)


def either(devices: int = 8, *alternatives: Configuration, **more: Any) -> JobSpec:
    """So many devices, or four CPUs without any, or what is given."""
    return with_changes(spec(devices), alternatives=alternatives or (on_cpus(),), **more)


def site(policy: Any = None, **settings: Any) -> Driver:
    """n1 has eight devices and three CPUs, n2 four CPUs."""
    d = Driver(policy or fitgpp(PreemptionSettings()), Settings(**settings))
    d.join("n1", LARGE)
    d.join("n2", SMALL)
    return d


def explained(d: Driver, job: int, chosen: Stages | None = None) -> Explanation:
    return explain(d.state, d.job(job), d.now, Random(0), chosen or stages("fitgpp", PreemptionSettings()))
