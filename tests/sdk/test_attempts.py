"""How often a call is tried, however its tries are looped over."""

import asyncio
from collections.abc import Callable

import pytest

from client_sdk._transport.attempts import Attempts

Loop = Callable[[Attempts, Callable[[], str]], str]


def _blocking(attempts: Attempts, call: Callable[[], str]) -> str:
    for context in attempts:
        with context:
            return call()
    raise AssertionError


def _awaited(attempts: Attempts, call: Callable[[], str]) -> str:
    async def loop() -> str:
        async for context in attempts:
            with context:
                return call()
        raise AssertionError

    return asyncio.run(loop())


@pytest.fixture(params=[_blocking, _awaited])
def loop(request: pytest.FixtureRequest) -> Loop:
    found: Loop = request.param
    return found


@pytest.mark.parametrize("failures", range(4))
def test_each_failure_is_told_once_and_the_answer_is_that_of_the_last_try(loop: Loop, failures: int) -> None:
    errors = [OSError(str(number)) for number in range(failures)]
    to_come, told = list(errors), list[Exception]()

    def call() -> str:
        if to_come:
            raise to_come.pop(0)
        return "answer"

    assert loop(Attempts(lambda error: told.append(error) or 0.001), call) == "answer"  # type: ignore[func-returns-value]
    assert told == errors


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_the_last_failure_is_what_is_raised(loop: Loop, tries: int) -> None:
    made: list[OSError] = []

    def call() -> str:
        made.append(OSError())
        raise made[-1]

    with pytest.raises(OSError) as caught:  # noqa: PT011
        loop(Attempts(lambda _: len(made) < tries and 0.001), call)
    assert (len(made), caught.value) == (tries, made[-1])


def test_what_is_no_failure_of_a_call_ends_it_at_once(loop: Loop) -> None:
    def call() -> str:
        raise SystemExit(3)

    told: list[Exception] = []
    with pytest.raises(SystemExit):
        loop(Attempts(lambda error: told.append(error) or True), call)  # type: ignore[func-returns-value]
    assert told == []
