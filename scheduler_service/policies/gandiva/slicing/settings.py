"""The settings of time slicing and introspection."""

from typing import NamedTuple

from scheduler_service.core.model.values import SECOND, Micros


class Settings(NamedTuple):
    """Durations are in seconds. 0 turns a mechanism off, where the mechanism is a setting."""

    period: float = 60
    """Time in which each row of a share group has a turn; also the time between two looks at a server."""
    switching_cost: float = 2
    """Percent of a cycle of turns that parks and resumes may take. If they take more, the cycle gets longer than `period`."""
    longest_period: float = 600
    """The longest cycle of turns. As long as no job moves, none waits for longer for a turn."""
    oversubscription: float = 4
    """Devices that the runs of a server may ask for together, relative to those that it has."""
    rows: int = 8
    """The most rows that the jobs of a share group may need for a turn each, such as the jobs that take turns on one device."""
    preempting: int = 1
    """Whether trials have best-effort runs preempted, if they can neither take a place nor turns."""
    packing: int = 1
    """Whether jobs are packed."""
    packed_most: int = 4
    """The most jobs on a device at a time."""
    pack_moves: int = 0
    """Whether a job moves to the devices of another one so that the two are packed, if jobs are moved at all. Off, since
    simulations do not agree on whether that pays (ADR 50)."""
    packing_gain: float = 5
    """Percent by which packing has to be better than time slicing to be kept."""
    probe_periods: float = 10
    """A probe that has not been measured after so many periods is undone; after so many cycles, if the packed jobs take turns
    with others."""
    remembered: float = 86_400
    """How long it is remembered whether packing pays for two kinds of jobs."""
    migration: int = 1
    """Whether jobs are moved."""
    moves_per_hour: int = 60
    """The most moves of jobs in an hour."""
    move_pause: float = 600
    """How long a job stays before it is moved again: at some seconds a move, less than 1 % of its time is lost."""
    defragment_free: float = 75
    """Percent of a server's devices: a server in use on which so many are free is emptied, if other servers have room."""
    slowed: float = 30
    """Percent: a job whose mini-batches take so much longer than at best is moved to a server without neighbors."""
    rotate: float = 300
    """How long the jobs of a server stay at least before one of them changes its place, so that all get the same part of the
    devices in the long run. They stay for the longest cycle of turns there in any case."""
    growth: int = 1
    """Whether elastic jobs grow into idle devices of their server."""
    grow_after: float = 300
    """How long devices have to be idle before a job grows."""

    @property
    def period_us(self) -> Micros:
        return round(self.period * SECOND)

    @property
    def longest_period_us(self) -> Micros:
        return round(self.longest_period * SECOND)

    def check(self) -> None:
        """Raises ValueError for a value that is out of range."""
        for name, least in (("period", 1), ("oversubscription", 1), ("rows", 1), ("packed_most", 1), ("probe_periods", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"the setting {name} is {getattr(self, name):g}; it must be at least {least}")
        if 0 < self.switching_cost < 0.1 or self.switching_cost > 100:
            may_be = "it is a percentage from 0.1 to 100, or 0 for turns that do not get longer"
            raise ValueError(f"the setting switching_cost is {self.switching_cost:g}; {may_be}")
        for name, value in self._asdict().items():
            if value < 0:
                raise ValueError(f"the setting {name} is {value:g}; it must not be negative")
