"""The tokens that callers have shown lately: a call asks memory, and one query every two seconds asks the database for all.

So a token that is revoked stops working within seconds, also for the streams that were opened with it. While the database
does not answer, a token keeps working for a minute from when it was last found there.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from scheduler_service.core.model.tokens import Token
from scheduler_service.core.model.values import Micros
from scheduler_service.run.ports import NotCommitted

FRESH = 2.0
"""Seconds between two looks at the tokens in use."""
KNOWN = 60.0
"""Seconds that a token is taken for good after it was last found, and that an unused one is remembered."""

Find = Callable[[Collection[bytes]], Mapping[bytes, Token]]
"""Those of these SHA-256 that are tokens and not revoked; they may have expired. Raises NotCommitted."""

log = logging.getLogger(__name__)


def digest_of(secret: str) -> bytes:
    """Return the digest that is stored of a secret. A secret has 256 random bits, so no slower hash is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def wall_clock() -> Micros:
    """Return the time by which tokens expire."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class _Entry:
    token: Token
    found: float
    used: float
    streams: set[Callable[[], None]] = field(default_factory=set)


class Tokens:
    """For the event loop alone. `monotonic` and `wall` are clocks."""

    def __init__(
        self, find: Find, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], Micros] = wall_clock
    ) -> None:
        self._find = find
        self._monotonic = monotonic
        self._wall = wall
        self._entries: dict[bytes, _Entry] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokens")
        self._asking = asyncio.Lock()
        self._next: tuple[set[bytes], asyncio.Task[Mapping[bytes, Token]]] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks at those in use again and again from now on."""
        self._refreshing = asyncio.create_task(self._refresh_for_ever())

    def stop(self) -> None:
        """Waits for the query that is being answered: its connection must be back before that is closed."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._thread.shutdown(cancel_futures=True)

    async def look_up(self, secret: str) -> Token | None:
        """The token, which may have expired; None when it is not known, or was revoked.

        Raises NotCommitted when the database cannot be asked about it.
        """
        digest = digest_of(secret)
        now = self._monotonic()
        entry = self._entries.get(digest)
        if entry is None or now - entry.found >= KNOWN:
            token = (await self._ask([digest])).get(digest)
            if token is None:
                self._forget(digest)
                return None
            entry = self._entries.setdefault(digest, _Entry(token, now, now))
            entry.token, entry.found = token, now
        entry.used = now
        return entry.token

    @contextmanager
    def hold(self, secret: str, lost: Callable[[], None]) -> Iterator[None]:
        """For a stream: `lost` is called when its token is revoked or expires while this lasts."""
        entry = self._entries.get(digest_of(secret))
        if entry is None:  # revoked since it was looked up
            lost()
            yield
            return
        entry.streams.add(lost)
        try:
            yield
        finally:
            entry.streams.discard(lost)

    async def refresh(self) -> None:
        """Looks at all that are in use. Raises NotCommitted."""
        now = self._monotonic()
        in_use = [digest for digest, entry in self._entries.items() if entry.streams or now - entry.used < KNOWN]
        for digest in self._entries.keys() - in_use:
            del self._entries[digest]
        if not in_use:
            return
        for digest in in_use:  # first those for which the database need not be there
            if self._entries[digest].token.has_expired(self._wall()):
                _end(self._entries[digest])
        found = await self._ask(in_use)
        for digest in in_use:
            entry = self._entries.get(digest)
            if digest not in found:
                self._forget(digest)
            elif entry is not None:
                entry.token, entry.found = found[digest], now
                if entry.token.has_expired(self._wall()):
                    _end(entry)

    def _forget(self, digest: bytes) -> None:
        entry = self._entries.pop(digest, None)
        if entry is not None:
            _end(entry)

    async def _refresh_for_ever(self) -> None:
        complained = False
        while True:
            await asyncio.sleep(FRESH)
            try:
                await self.refresh()
                complained = False
            except NotCommitted as error:
                if not complained:
                    log.warning("tokens cannot be checked; those in use go on for %.0f s: %s", KNOWN, error)
                complained = True
            except Exception:  # whose tokens were revoked meanwhile is found out again at the next look
                log.exception("tokens were not checked")

    async def _ask(self, digests: Iterable[bytes]) -> Mapping[bytes, Token]:
        """One query at a time; those who come meanwhile share the next one, however many they are."""
        if self._next is None:
            self._next = set(), asyncio.create_task(self._ask_for_all())
            self._next[1].add_done_callback(lambda done: done.cancelled() or done.exception())  # its callers may have gone
        wanted, answer = self._next
        wanted.update(digests)
        return await asyncio.shield(answer)

    async def _ask_for_all(self) -> Mapping[bytes, Token]:
        async with self._asking:
            assert self._next is not None
            (wanted, _), self._next = self._next, None
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._find, wanted)


def _end(entry: _Entry) -> None:
    """Each is told once: to be cancelled again would disturb it while it says so."""
    streams, entry.streams = entry.streams, set()
    for lost in streams:
        lost()
