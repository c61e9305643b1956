"""A look at the state now and then: does what must always hold (`core.invariants`) hold in this very process?

Tests look at everything after every step. Here that would hold up the engine for half a second where thousands of jobs run,
so that each look is at one job and one node, which are drawn.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from scheduler_service.core.engine import Policy
from scheduler_service.core.errors import Broken
from scheduler_service.core.invariants import sample
from scheduler_service.core.messages import Rng
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.run.engine_queue import NotLeading, Overloaded, Question

log = logging.getLogger(__name__)

EVERY = 5.0
"""Seconds between two looks."""

Ask = Callable[[Question[None]], "asyncio.Future[None]"]


async def watch_state(ask: Ask, every: float = EVERY) -> None:
    """Check the state until cancelled, or until this scheduler no longer leads. Each violation is logged once, and the service
    continues, for it may be one row of thousands."""
    told: set[str] = set()
    while True:
        await asyncio.sleep(every)
        try:
            await ask(_sample_state)
        except Overloaded:
            continue
        except NotLeading:
            return
        except Broken as broken:
            if str(broken) not in told:
                told.add(str(broken))
                log.error(
                    "a fault of Ebb itself: %s. Jobs go on. Restart this scheduler, which builds its state anew from the "
                    "database; if this comes again, report it with `ebb story` of the jobs that it names",
                    broken,
                )


def _sample_state(state: State, _now: Micros, rng: Rng, _policy: Policy) -> Any:
    sample(state, rng)
