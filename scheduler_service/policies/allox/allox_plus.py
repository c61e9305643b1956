"""allox-plus: the shortest job first, in whichever of its configurations has room (AlloX+; AlloX, EuroSys 2020, section 4.4).

The heuristic of the paper for large clusters: it makes no matching. It never leaves a slot idle that some job can use, so it
may start a job on a slot that is slow for that job. Jobs that have waited for longer than a time-out are served before all
others, in the order in which they came.
"""

from math import isfinite
from typing import NamedTuple

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.policies.allox.choice_loop import Key, Rule, by_arrival, by_time, choosing
from scheduler_service.policies.allox.configuration_times import Way
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.stages import Stages


class Settings(NamedTuple):
    """Settings of this policy alone."""

    timeout: float = 3600
    """Seconds after which a waiting job is served before those that have waited for less."""
    reserved_cpus: float = 1
    """CPU cores that jobs without devices leave for each free device of a node."""
    unknown: float = 3600
    """Seconds that a configuration without an estimate is taken to run."""


def stages(options: Options) -> Stages:
    settings = own_settings(Settings, options.own)
    for name, value, least, most in (
        ("timeout", settings.timeout, 0.0, 1e8),
        ("reserved_cpus", settings.reserved_cpus, 0.0, 1024.0),
        ("unknown", settings.unknown, 1.0, 1e8),
    ):
        if not (isfinite(value) and least <= value <= most):
            raise ValueError(f"the setting {name} is {value}; it must be from {least:g} to {most:g}")
    rule = shortest_first(round(settings.timeout * SECOND))
    return Stages(choosing(rule, round(settings.unknown * SECOND), round(settings.reserved_cpus * 1000)))


def shortest_first(timeout_us: Micros) -> Rule:
    def key(way: Way, now: Micros) -> Key:
        timed_out = now - way.job.submitted_us > timeout_us
        return (0, *by_arrival(way, now)) if timed_out else (1, *by_time(way, now))

    return Rule(key)
