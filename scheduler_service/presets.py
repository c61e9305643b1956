"""Named sets of defaults, for the service's settings and for the policies that `ebb-sim run` compares.

`site` is what an operator would choose; docs/operating.md shows what each of its settings costs and gains. `paper` is what the
FitGpp paper assumes: nobody jumps the queue, a run may be preempted in its first second, and nothing breaks.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

Preset = Literal["site", "paper"]

SERVICE: Final[Mapping[str, Mapping[str, Any]]] = {
    "site": {"backfill": True, "min_run": 60.0, "fault_retries": 2, "fitgpp_trials_in_flight": None},
    "paper": {"backfill": False, "min_run": 0.0, "fault_retries": 0, "fitgpp_trials_in_flight": 1},
}
"""Defaults of the scheduler's settings, by preset."""

SIMULATED: Final[Mapping[str, Mapping[str, Any]]] = {
    "site": {"backfill": True, "min_run": 60.0, "trials_in_flight": None, "sparing": True, "in_order": False},
    "paper": {"backfill": False, "min_run": 0.0, "trials_in_flight": 1, "sparing": False, "in_order": True},
}
"""Defaults of a simulated policy's settings, by preset. The service does not have all of these settings."""


def fill_from_preset(told: Any, presets: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the given settings on top of their preset's. A value that is no mapping or has an unknown preset is unchanged."""
    if not isinstance(told, dict):
        return told
    preset = told.get("preset", "site")
    return {**presets[preset], **told} if isinstance(preset, str) and preset in presets else told
