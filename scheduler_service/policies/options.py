"""The settings that policies know."""

from typing import NamedTuple


class FitGppSettings(NamedTuple):
    """Parameters of the paper. `s` weighs the grace period against the size (Eqn 3); `cap` is P (Eqn 4), which holds for
    every rule. `trials_in_flight` bounds how many trials may wait for victims at once; None is no bound, 1 is the papers'
    setting.
    """

    s: float = 4.0
    cap: int = 1
    trials_in_flight: int | None = None
    sparing: bool = True
    """Of runs drawn one after the other (LRTP, RAND, FitGpp's random ones) only those leave that make the room; False: all
    that were drawn until there was room, as published."""
    in_order: bool = False
    """A trial that waits for victims holds up the trials behind it, as published; no other waits for any then."""


AS_PUBLISHED = FitGppSettings(trials_in_flight=1, sparing=False, in_order=True)
"""How the FitGpp paper's simulator decides, as far as its figures tell."""


class Options(NamedTuple):
    """The settings that policies know."""

    fitgpp: FitGppSettings = FitGppSettings()
    backfill: bool = False
    exchange: str = "balanced"
    """How cells are exchanged: one of `policies.exchange.stage.MATCHES`."""
    promotes: bool = True
    """In cells: what overflowed becomes guaranteed where it runs."""
