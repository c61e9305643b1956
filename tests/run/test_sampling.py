"""The look at the state now and then: what it finds is told once, and it goes on as long as this scheduler leads."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler_service.core.model import JobState
from scheduler_service.core.model.rows import with_changes
from scheduler_service.run.engine_thread import NotLeading, Overloaded
from scheduler_service.run.invariant_sampling import watch_state
from tests.core.driver import Driver

LIMIT = 20


class Engine:
    """Answers questions about a state, `looks` times; then it leads no more."""

    def __init__(self, looks: int) -> None:
        self.driver = Driver()
        self.driver.join()
        self.driver.submit()
        self.left = looks
        self.busy = 0

    def ask(self, question: Callable[..., Any]) -> "asyncio.Future[None]":
        if self.busy:
            self.busy -= 1
            raise Overloaded
        if not self.left:
            raise NotLeading
        self.left -= 1
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(question(self.driver.state, 0, _First(), None))
        except Exception as fault:
            answer.set_exception(fault)
        return answer


class _First:
    def randrange(self, _stop: int, /) -> int:
        return 0


async def test_what_holds_is_not_told_and_a_busy_engine_is_asked_later(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(looks=3)
    engine.busy = 2
    await asyncio.wait_for(watch_state(engine.ask, 0), LIMIT)
    assert engine.left == 0
    assert not caplog.records


async def test_what_is_broken_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(looks=5)
    jobs = engine.driver.state.jobs.rows
    jobs[1] = with_changes(jobs[1], state=JobState.QUEUED)
    await asyncio.wait_for(watch_state(engine.ask, 0), LIMIT)
    assert engine.left == 0
    (record,) = caplog.records
    assert "job 1 is QUEUED with runs" in record.message
    assert "Restart this scheduler" in record.message
