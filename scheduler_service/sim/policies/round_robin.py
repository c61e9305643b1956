"""round-robin: time slicing alone. A job that does not fit takes turns with others instead of waiting (Gandiva, section 4.2.1),
and jobs of a server change places, so that all get the same part of its devices (Figure 9).

It is the policy `gandiva` without packing, growth and other moves: it shows what turns alone do.
"""

from typing import NamedTuple

from scheduler_service.core.model.values import SECOND
from scheduler_service.policies.gandiva import policy
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.stages import Stages

OFF = {"packing": 0.0, "growth": 0.0, "moves_per_hour": 0.0, "preempting": 0.0}
"""Moves that are no changes of places are counted by the hour."""


MEASURED_US = 1800 * SECOND
"""Turns need the memory of jobs alone, which hardly changes after the first measurement."""


class Settings(NamedTuple):
    """Those of `gandiva` that turns depend on, with the same defaults."""

    period: float = 60
    switching_cost: float = 2
    longest_period: float = 600
    oversubscription: float = 4
    rows: int = 8
    rotate: float = 300


def stages(options: Options) -> Stages:
    """Raises ValueError for settings that cannot be."""
    own_settings(Settings, options.own)  # another mechanism of `gandiva` is no setting here
    made = policy.stages(options._replace(own={**options.own, **OFF}))
    return made._replace(order=made.order._replace(measured_us=MEASURED_US))
