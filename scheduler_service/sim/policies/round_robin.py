"""round-robin: time slicing alone. A job that does not fit takes turns with others instead of waiting (Gandiva, section 4.2.1),
and jobs of a server rotate, so that all get the same part of its devices (Figure 9).

It is the policy `gandiva` without packing, growth and other moves: it shows the effect of turns alone.
"""

from typing import NamedTuple

from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.gandiva import policy
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.stages import Stages

OFF = {"packing": 0.0, "growth": 0.0, "moves_per_hour": 0.0, "preempting": 0.0}
"""Settings that disable the other mechanisms. Moves other than rotations are limited by the hour."""


MEASURED_US = 1800 * SECOND
"""The time between measurements. Turns need only the memory of jobs, which hardly changes after the first measurement."""


class Settings(NamedTuple):
    """The settings of `gandiva` that turns depend on, with the same defaults."""

    period: float = 60
    switching_cost: float = 2
    longest_period: float = 600
    oversubscription: float = 4
    rows: int = 8
    rotate: float = 300


def stages(options: Options) -> Stages:
    """Raises ValueError for invalid settings."""
    own_settings(Settings, options.own)  # settings of other mechanisms of `gandiva` are unknown here
    made = policy.stages(options._replace(own={**options.own, **OFF}))
    return made._replace(order=made.order._replace(measured_us=MEASURED_US))
