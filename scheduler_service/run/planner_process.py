"""Plans that take long are made by another process, so that the engine's thread and the event loop stay free for users.

A plan that is lost, since the process died or took too long, costs nothing but time: the policy asks again.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from scheduler_service.core.messages import Delegate, Event, PlanReady
from scheduler_service.run.engine_queue import NotLeading

log = logging.getLogger(__name__)

LIMIT = 60.0
"""Seconds that a plan may take."""


class Planner:
    """Use on the event loop. One plan is made at a time. What is delegated meanwhile waits; of several questions about one
    subject only the latest does."""

    def __init__(self, handle: Callable[[Event], "asyncio.Future[Any]"], limit: float = LIMIT) -> None:
        """`handle` gets the events."""
        self._handle = handle
        self._limit = limit
        self._waiting: dict[tuple[str, str], Delegate] = {}
        self._task: asyncio.Task[None] | None = None
        self._worker: tuple[SpawnProcess, Connection] | None = None

    def take_delegated(self, delegated: Iterable[Delegate]) -> None:
        for one in delegated:
            self._waiting[one.policy, one.subject] = one
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.to_thread(self._end)

    async def _work(self) -> None:
        while self._waiting:
            at = next(iter(self._waiting))
            try:
                plan = await asyncio.to_thread(self._ask, self._waiting.pop(at))
            except (OSError, EOFError) as error:
                log.warning(
                    "the process that makes plans has ended (%s); the next plan is made by another", type(error).__name__
                )
                await asyncio.to_thread(self._end)
                continue
            if isinstance(plan, Exception):
                log.error("no plan of %s about %s could be made", *at, exc_info=plan)
                continue
            if plan is None:
                log.warning("a plan of %s took longer than %g s and was given up; the policy asks again", at[0], self._limit)
                await asyncio.to_thread(self._end)
                continue
            try:
                await self._handle(PlanReady(*at, plan))
            except NotLeading:
                return
            except Exception as error:  # not durable now, or too much waits: the policy asks again
                log.warning("a plan of %s was lost: %s", at[0], error)

    def _ask(self, one: Delegate) -> Any:
        """The plan; the exception that there was instead; None: it took too long. Raises OSError, EOFError."""
        if self._worker is None:
            self._worker = _begin()
        _, link = self._worker
        link.send(one.question)
        return link.recv() if link.poll(self._limit) else None

    def _end(self) -> None:
        if self._worker is not None:
            process, link = self._worker
            self._worker = None
            process.kill()
            process.join()
            link.close()


def _begin() -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks, and gRPC's state
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), name="planner", daemon=True)
    process.start()
    there.close()
    return process, here


def _serve(link: Connection) -> None:
    """The other process. It ends when the scheduler does, or closes the link."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)  # users come first
    while True:
        try:
            question = link.recv()
        except (EOFError, OSError):
            return
        try:
            answer = question()
        except Exception as error:
            answer = error
        link.send(answer)
