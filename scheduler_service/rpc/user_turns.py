"""Users take turns with the calls that change something, and with those that send and read files, so that one who sends
thousands does not hold up the others. Agents do not wait for users: at most two calls of users are before theirs.

A call has its turn before its request is parsed, which together with its answer is most of the work that it makes.
"""

import asyncio
from collections.abc import Set
from typing import Any

from scheduler_service.database import FILE_CALLS
from scheduler_service.rpc.access import user
from scheduler_service.rpc.method_table import Call, Context, Method
from scheduler_service.run.engine_thread import Overloaded
from scheduler_service.run.fair_queue import FairQueue

AT_ONCE = 64
"""Calls at work: enough that the engine commits many of them in one step, which then takes some 15 ms."""
WAITING_EACH = 2000
"""Calls of one user that may wait for their turn. Further ones are refused."""

_SCHEDULER = ("Submit", "Cancel", "Suspend", "Resume", "Hold", "Release", "Requeue", "Resize", "Migrate", "Update")
_EXCHANGE = ("Post", "Withdraw", "Accept", "ReturnCells")
CHANGES = frozenset(f"/ebb.v1.Scheduler/{name}" for name in _SCHEDULER) | {f"/ebb.v1.Exchange/{name}" for name in _EXCHANGE}
"""The methods by which users change something."""
FILES = frozenset(f"/ebb.v1.Snapshots/{name}" for name in ("FindSnapshot", "PutSnapshot", "GetResult"))
"""The methods by which users send and read files. Agents read files by the same connections to the database."""
FILES_AT_ONCE = FILE_CALLS
"""As many as there are connections."""
FILES_WAITING_EACH = 200
"""Calls of one user that may wait with a piece of a file each, of 1 MiB."""


class Turns:
    """For one event loop. `at_once` calls of `methods` are at work, and `waiting_each` of each user may wait."""

    def __init__(self, at_once: int = AT_ONCE, waiting_each: int = WAITING_EACH, methods: Set[str] = CHANGES) -> None:
        self._methods = methods
        self._free = at_once
        self._waiting_each = waiting_each
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    def serve_in_turn(self, method: Method, call: Call) -> Call:
        """Serves the method's calls in turns. Raises Overloaded for a user of whom too many wait."""
        if method.name not in self._methods:
            return call

        async def taking(request: Any, context: Context) -> Any:
            await self._turn(user())
            try:
                return await call(request, context)
            finally:
                self._pass_on()

        return taking

    async def _turn(self, who: str) -> None:
        if self._free:
            self._free -= 1
            return
        if self._waiting.count(who) >= self._waiting_each:
            raise Overloaded(who, self._waiting_each)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(who, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.drop(who, turn)
            else:  # its turn had come just then
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.take().set_result(None)
        else:
            self._free += 1
