"""The settings of a fake cluster: those of a service, with other defaults."""

from collections.abc import Mapping
from typing import Any

from scheduler_service import config
from scheduler_service.config import Config

_DEFAULTS: Mapping[str, Any] = {
    "database": "postgresql://none/none",  # the store is in memory
    "listen": "127.0.0.1:0",
    "min_run": 0,  # tests do not wait for time to pass
    "retry_pause": 0,
}
_QUIET: Mapping[str, Any] = {"fitgpp_cap": 0}
"""Settings where the test chooses no policy: trials are first in the queue, and preempt nothing by themselves."""


def settings(policy: str | None, by_hand: bool, given: Mapping[str, Any]) -> Config:
    """Return the settings of the service. Raises ValueError, naming each setting that is wrong."""
    chosen = _QUIET if policy is None else {"policy": policy}
    try:
        found = config.load(None, {**_DEFAULTS, **chosen, **given})
    except config.ConfigError as error:
        raise ValueError(f"testing.cluster: {error}") from None
    if by_hand and found.virtual_clusters:
        raise ValueError("by_hand=True is for clusters without virtual clusters: jobs of these are started by their policy")
    return found
