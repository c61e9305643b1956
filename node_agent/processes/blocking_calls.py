"""Calls that may never return, such as a look into a process that hangs in the kernel."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def call_in_own_thread(call: Callable[[], T]) -> T:
    """Like asyncio.to_thread, but a caller that gives up on the call can exit, and so can the event loop, which otherwise waits
    for its own threads when it ends."""
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            result = call()
        except Exception as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    waiting = asyncio.wrap_future(outcome)
    outcome.set_running_or_notify_cancel()  # it can no longer be cancelled from here on
    threading.Thread(target=work, daemon=True).start()
    return await waiting
