"""How a simulation treats shared devices, as the agents take it."""

from dataclasses import dataclass

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.sharing.delays import AT_ONCE, Switching
from scheduler_service.sim.sharing.model import Proportional, Rates

MINUTE_US = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Setup:
    rates: Rates
    switching: Switching = AT_ONCE
    exact: bool = False
    """Each slice begins and ends at its time; False: a run executes all the time at the mean rate of a cycle, which is the same
    at the end of each cycle, and takes fewer events."""
    measures_every_us: Micros | None = None
    """Nodes tell the mini-batch time of each run as often, while the policy asks for it; None: never."""
    noise: float = 0.0
    """Standard deviation of measured times, relative to the right ones."""


PLAIN = Setup(Proportional())
"""Of a simulation whose jobs are of no kind."""
