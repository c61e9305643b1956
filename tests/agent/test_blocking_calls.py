"""Calls that may never come back."""

import asyncio
import threading
import time

import pytest

from node_agent.processes.blocking_calls import call_in_own_thread


async def test_what_is_called_answers_or_fails() -> None:
    assert await call_in_own_thread(lambda: 7) == 7
    with pytest.raises(OSError, match="no"):
        await call_in_own_thread(lambda: open("/no/such/file"))  # noqa: PTH123, SIM115


def test_what_hangs_keeps_nobody() -> None:
    release, left = threading.Event(), threading.Event()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await call_in_own_thread(release.wait)

    def live() -> None:
        asyncio.run(give_up())
        left.set()

    life = threading.Thread(target=live)
    before = threading.active_count()
    life.start()
    try:
        assert left.wait(20)
    finally:
        release.set()  # the loop has ended by now, and nobody is told
        life.join(20)
    end = time.monotonic() + 20
    while threading.active_count() > before:
        assert time.monotonic() < end
