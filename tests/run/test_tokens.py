"""What is remembered of tokens: for how long, and what the database is asked."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler_service.core.model.tokens import Role, Token
from scheduler_service.run import token_cache as module
from scheduler_service.run.ports import NotCommitted
from scheduler_service.run.token_cache import KNOWN, Tokens, digest_of


class Site:
    """A database of tokens, and the clocks."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Token] = {}
        self.away = False
        self.asked: list[set[bytes]] = []
        self.now = 1000.0
        self.wall_us = 5_000_000
        self.answers = threading.Event()
        self.answers.set()
        self.tokens = Tokens(self.find, lambda: self.now, lambda: self.wall_us)

    def add(self, secret: str, expires_us: int | None = None) -> Token:
        token = Token(len(self.rows) + 1, secret, Role.USER, secret[-6:], 0, expires_us)
        self.rows[digest_of(secret)] = token
        return token

    def revoke(self, secret: str) -> None:
        del self.rows[digest_of(secret)]

    def find(self, digests: Collection[bytes]) -> Mapping[bytes, Token]:
        self.asked.append(set(digests))
        assert self.answers.wait(20)
        if self.away:
            raise NotCommitted("the database is away")
        return {digest: self.rows[digest] for digest in digests if digest in self.rows}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    yield made
    made.answers.set()
    made.tokens.stop()


async def test_a_token_that_is_known_costs_no_query(site: Site) -> None:
    token = site.add("one")
    for _ in range(100):
        assert await site.tokens.look_up("one") == token
    assert len(site.asked) == 1


async def test_a_new_token_works_at_once_and_a_revoked_one_until_the_next_look(site: Site) -> None:
    assert await site.tokens.look_up("one") is None
    token = site.add("one")
    assert await site.tokens.look_up("one") == token
    site.revoke("one")
    assert await site.tokens.look_up("one") == token
    await site.tokens.refresh()
    assert await site.tokens.look_up("one") is None


async def test_a_stream_ends_when_its_token_expires_also_while_the_database_is_away(site: Site) -> None:
    site.add("one", expires_us=site.wall_us + 1)
    site.add("two")
    lost: list[str] = []
    for name in ("one", "two"):
        await site.tokens.look_up(name)
    with site.tokens.hold("one", lambda: lost.append("one")), site.tokens.hold("two", lambda: lost.append("two")):
        site.away, site.wall_us = True, site.wall_us + 1
        with pytest.raises(NotCommitted):
            await site.tokens.refresh()
        assert lost == ["one"]


async def test_all_in_use_are_looked_at_in_one_query_and_others_are_forgotten(site: Site) -> None:
    for name in ("one", "two", "three"):
        site.add(name)
        await site.tokens.look_up(name)
    site.asked.clear()
    site.now += KNOWN - 1
    await site.tokens.look_up("one")
    await site.tokens.look_up("two")
    assert site.asked == []
    site.now += 1
    await site.tokens.refresh()
    assert site.asked == [{digest_of("one"), digest_of("two")}]
    site.now += 2 * KNOWN
    await site.tokens.refresh()
    await site.tokens.refresh()
    assert len(site.asked) == 1, "nobody uses any"


async def test_without_the_database_a_token_works_for_a_minute_from_when_it_was_last_found(site: Site) -> None:
    token = site.add("one")
    await site.tokens.look_up("one")
    site.now += 30
    await site.tokens.look_up("one")
    await site.tokens.refresh()
    site.away = True
    for _ in range(2):
        site.now += (KNOWN - 1) / 2
        with pytest.raises(NotCommitted):
            await site.tokens.refresh()
        assert await site.tokens.look_up("one") == token
    with pytest.raises(NotCommitted):
        await site.tokens.look_up("two")
    site.now += 1
    with pytest.raises(NotCommitted):
        await site.tokens.look_up("one")
    site.away = False
    assert await site.tokens.look_up("one") == token


async def test_those_who_come_while_the_database_answers_share_the_next_query(site: Site) -> None:
    site.add("0")
    site.answers.clear()
    calls = [asyncio.create_task(site.tokens.look_up("first"))]
    while not site.asked:
        await asyncio.sleep(0.001)
    calls += [asyncio.create_task(site.tokens.look_up(str(n))) for n in range(50)]
    await asyncio.sleep(0)
    calls[7].cancel()
    site.answers.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert len(site.asked) == 2, "one caller who gave up spoils it for nobody"
    assert found[1] == site.rows[digest_of("0")]
    assert isinstance(found[7], asyncio.CancelledError)
    assert all(token is None for token in found[:1] + found[2:7] + found[8:])


async def test_streams_are_ended_when_their_token_is_revoked_or_expires(site: Site) -> None:
    ended: list[str] = []
    site.add("revoked")
    site.add("expiring", expires_us=site.wall_us + 10)
    site.add("good")
    for name in ("revoked", "expiring", "good"):
        await site.tokens.look_up(name)
    with (
        site.tokens.hold("revoked", lambda: ended.append("revoked")),
        site.tokens.hold("expiring", lambda: ended.append("expiring")),
        site.tokens.hold("good", lambda: ended.append("good")),
    ):
        await site.tokens.refresh()
        assert ended == []
        site.revoke("revoked")
        site.wall_us += 10
        site.now += 100 * KNOWN  # a stream keeps its token in use, however long nobody called with it
        await site.tokens.refresh()
        assert sorted(ended) == ["expiring", "revoked"]
    site.revoke("good")
    await site.tokens.refresh()
    assert "good" not in ended, "it was over before"
    with site.tokens.hold("revoked", lambda: ended.append("late")):
        assert ended[-1] == "late"


async def test_it_looks_by_itself_again_and_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH", 0.001)
    site.add("one")
    await site.tokens.look_up("one")
    site.tokens.start()
    site.away = True
    asked = len(site.asked)
    await asyncio.wait_for(_until(lambda: len(site.asked) > asked + 3), 20)  # it goes on over failures
    site.away = False
    site.revoke("one")
    await asyncio.wait_for(_until(lambda: not site.tokens._entries), 20)
    assert await site.tokens.look_up("one") is None


async def _until(what: object) -> None:
    while not what():  # type: ignore[operator]
        await asyncio.sleep(0.001)


async def test_a_query_that_is_being_answered_is_waited_for(site: Site) -> None:
    """Its connection would else come back to a pool that was closed, and stay open."""
    site.answers.clear()
    asking = asyncio.create_task(site.tokens.look_up("one"))
    await asyncio.wait_for(_until(lambda: site.asked), 20)
    stopping = threading.Thread(target=site.tokens.stop)
    stopping.start()
    stopping.join(0.1)
    assert stopping.is_alive()
    site.answers.set()
    await asyncio.to_thread(stopping.join, 20)
    assert not stopping.is_alive()
    assert await asking is None


def test_the_thread_ends_with_it() -> None:
    async def use() -> ThreadPoolExecutor:
        site = Site()
        await site.tokens.look_up("one")
        site.tokens.stop()
        return site.tokens._thread

    pool = asyncio.run(use())
    for thread in pool._threads:
        thread.join(20)
        assert not thread.is_alive()
