"""Plans are made by a process of their own: one that dies or hangs costs a plan, and nothing else."""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scheduler_service.core.messages import Delegate, Event, PlanReady
from scheduler_service.run.engine_queue import NotLeading
from scheduler_service.run.planner_process import Planner

LIMIT = 60.0


def who(number: int) -> tuple[int, ...]:
    """A question: the number, and which process answers."""
    return number, os.getpid()


def dies(signal: int) -> tuple[int, ...]:
    os.kill(os.getpid(), signal)
    return (0,)


def hangs() -> tuple[int, ...]:
    while True:
        time.sleep(60)


def fails() -> tuple[int, ...]:
    raise ValueError("no such plan")


class Engine:
    """What handles the events."""

    def __init__(self) -> None:
        self.plans: asyncio.Queue[tuple[int | str, ...]] = asyncio.Queue()
        self.refuses: Exception | None = None

    def handle(self, event: Event) -> "asyncio.Future[Any]":
        if self.refuses is not None:
            raise self.refuses
        assert isinstance(event, PlanReady)
        assert (event.policy, event.subject) == ("p", "/plan")
        self.plans.put_nowait(event.plan)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def plan(self) -> tuple[int | str, ...]:
        return await asyncio.wait_for(self.plans.get(), LIMIT)


class Impatient(Planner):
    """Gives up a plan that hangs after 2 s. The others have time: on a busy machine a process begins late."""

    def _ask(self, one: Delegate) -> Any:
        self._limit = 2 if one.question is hangs else LIMIT
        return super()._ask(one)


def question(of: Callable[[], tuple[int, ...]], subject: str = "/plan") -> tuple[Delegate]:
    return (Delegate("p", subject, of),)


def test_a_process_answers_and_is_kept_until_it_dies_or_hangs(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        engine = Engine()
        planner = Impatient(engine.handle)
        try:
            planner.take_delegated(question(partial(who, 1)))
            first = await engine.plan()
            assert first[0] == 1
            assert first[1] != os.getpid()
            planner.take_delegated(question(partial(who, 2)))
            assert await engine.plan() == (2, first[1]), "the same process"
            planner.take_delegated(question(fails))
            while planner._waiting:
                await asyncio.sleep(0.01)
            planner.take_delegated(question(partial(who, 3)))
            assert (await engine.plan())[0] == 3
            for number, bad in enumerate((partial(dies, 9), hangs), 4):
                planner.take_delegated(question(bad))
                await asyncio.to_thread(time.sleep, 0)
                while planner._waiting:
                    await asyncio.sleep(0.01)
                planner.take_delegated(question(partial(who, number)))
                after = await engine.plan()
                assert after[0] == number
                assert after[1] != first[1], "another process"
                first = after
        finally:
            await planner.close()

    asyncio.run(run())
    said = [record.getMessage() for record in caplog.records]
    assert any("has ended" in line for line in said)
    assert any("took longer than 2 s" in line for line in said)
    assert any("could be made" in line for line in said)


def test_of_several_questions_about_one_subject_only_the_latest_waits() -> None:
    async def run() -> None:
        engine = Engine()
        planner = Planner(engine.handle)
        try:
            for number in range(10):
                planner.take_delegated(question(partial(who, number)))
            assert (await engine.plan())[0] == 9
        finally:
            await planner.close()

    asyncio.run(run())


@pytest.mark.parametrize("refusal", [NotLeading(), ValueError("not durable")])
def test_a_plan_that_nobody_takes_is_dropped(refusal: Exception) -> None:
    async def run() -> None:
        engine = Engine()
        engine.refuses = refusal
        planner = Planner(engine.handle)
        try:
            planner.take_delegated(question(partial(who, 1)))
            assert planner._task is not None
            await asyncio.wait_for(planner._task, LIMIT)
            engine.refuses = None
            planner.take_delegated(question(partial(who, 2)))
            assert (await engine.plan())[0] == 2
        finally:
            await planner.close()

    asyncio.run(run())
