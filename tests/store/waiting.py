"""Waiting for what must happen, with a limit."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T], limit: float = 20.0) -> T:
    """Looks again and again until there is something (true), and returns it; fails after `limit` seconds."""
    end = time.monotonic() + limit
    while not (found := look()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return found
