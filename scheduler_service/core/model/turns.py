"""The part of the time in which a run that takes turns with others may compute."""

from typing import NamedTuple

from scheduler_service.core.model.values import Micros


class Turns(NamedTuple):
    """Turns of a run that takes turns on its devices, or once did."""

    part_ppm: int
    """The part of the time in which it may compute, in millionths."""
    since_us: Micros
    """Time since when that has been its part."""
    waited_us: Micros = 0
    """How long it had waited for its turns before that, since it started."""
