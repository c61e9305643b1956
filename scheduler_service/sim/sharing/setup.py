"""The treatment of shared devices in a simulation, as the agents use it."""

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
    """Each slice begins and ends at its time; False: a run executes all the time at the mean rate of a cycle, which gives the
    same work at the end of each cycle, with fewer events."""
    measures_every_us: Micros | None = None
    """How often nodes report the mini-batch time of each run, while the policy asks for it; None: never."""
    noise: float = 0.0
    """Standard deviation of measured times, relative to the true ones."""


PLAIN = Setup(Proportional())
"""The setup of a simulation whose jobs have no kinds."""
