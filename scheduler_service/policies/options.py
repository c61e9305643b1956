"""The settings that policies know."""

from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar


class PreemptionSettings(NamedTuple):
    """Parameters of the paper. `s` weighs the grace period against the size (Eqn 3); `cap` is P (Eqn 4), which holds for
    every rule. `trials_in_flight` bounds how many trials may wait for victims at once; None is no bound, 1 is the papers'
    setting.
    """

    s: float = 4.0
    cap: int = 1
    trials_in_flight: int | None = None
    sparing: bool = True
    """Whether, of runs drawn one after the other (LRTP, RAND, FitGpp's random ones), only those leave that make the room;
    False: all that were drawn until there was room, as published."""
    in_order: bool = False
    """A trial that waits for victims holds up the trials behind it, as published; no other waits for any then."""


AS_PUBLISHED = PreemptionSettings(trials_in_flight=1, sparing=False, in_order=True)
"""How the FitGpp paper's simulator decides, as far as its figures tell."""


class Options(NamedTuple):
    """The settings that policies know."""

    fitgpp: PreemptionSettings = PreemptionSettings()
    backfill: bool = False
    exchange: str = "balanced"
    """How cells are exchanged: one of `policies.hived.exchange.arbiter_and_proxies.MATCHES`."""
    promotes: bool = True
    """In cells: what overflowed becomes guaranteed where it runs."""
    own: Mapping[str, float] = MappingProxyType({})
    """Settings that only the policy knows, by name."""


S = TypeVar("S")


def own_settings(kind: Callable[..., S], given: Mapping[str, float]) -> S:
    """Settings of a policy's own (a NamedTuple with defaults) from their names. A field that is a mapping takes all settings
    that begin with its name and a dot: user.ann is the value of ann in the field user. Raises ValueError for a name that the
    policy does not know, and for a value that is no finite number."""
    defaults: Mapping[str, Any] = getattr(kind, "_field_defaults", {})
    found: dict[str, Any] = {}
    for name, value in given.items():
        field, dot, key = name.partition(".")
        is_mapping = isinstance(defaults.get(field), Mapping)
        if field not in defaults or is_mapping is not bool(dot and key):
            known = (f"{known}.NAME" if isinstance(usual, Mapping) else known for known, usual in defaults.items())
            raise ValueError(f"the policy has no setting {name!r}; it has {', '.join(known) or 'none'}")
        if not isfinite(value):
            raise ValueError(f"the setting {name} is {value}; it must be a finite number")
        if is_mapping:
            found.setdefault(field, {})[key] = value
        else:
            found[field] = value
    return kind(**found)
