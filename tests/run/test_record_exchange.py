"""A site that exchanges cells: what it records comes out the same again, and a new leader finds everything as it was."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scheduler_service.config import Config
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import (
    AcceptRequested,
    Cells,
    Event,
    PostRequested,
    ReturnRequested,
    VcRequested,
    WithdrawRequested,
)
from scheduler_service.core.model import JobEvent
from scheduler_service.core.model.tenants.exchange import PostingKind
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.state import State
from scheduler_service.engine_settings import stages_of
from scheduler_service.memory_database import MemoryWriter
from scheduler_service.recording import begin
from scheduler_service.run.engine_thread import EngineThread
from scheduler_service.run.ports import NotCommitted
from scheduler_service.run.recording.record import Recording
from scheduler_service.store import memory
from tests.core.driver import EPOCH, inventory
from tests.run.live import LIMIT, Agent, load_state
from tests.run.recorded import replayed
from tests.store.waiting import wait_for

POOL = "a100-2x4"
NAMES = ("A", "B", "C")


class Unsteady(MemoryWriter):
    """The writer over the store in memory, which now and then does not."""

    def __init__(self, store: memory.Memory, epoch: int, commit_no: int, random: Random, often: float) -> None:
        super().__init__(store, epoch, commit_no)
        self._random = random
        self._often = often

    def commit(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        if self._random.random() < self._often:
            raise NotCommitted("no database")
        return super().commit(changes, events)


class Market:
    """Three virtual clusters of a node each, over leaderships of random trade. Windows last some hundred steps."""

    def __init__(self, seed: int, path: Path, exchange: str) -> None:
        self.store = memory.Memory()
        self.random = Random(seed)
        self.time = EPOCH
        self.config = Config(database="postgresql://nowhere", virtual_clusters=True, exchange=exchange, record=path)  # type: ignore[arg-type]
        self.agents = [Agent(f"n{number}") for number in range(3)]
        self.last: dict[str, object] = {}

    def now(self) -> int:
        self.time += 700
        return self.time

    async def lead(self, rounds: int, often: float = 0.07) -> None:
        epoch = memory.take(self.store, "site", 60)
        assert epoch is not None
        state, view, _ = load_state(self.store, epoch, self.config)
        if self.last:
            assert kept(state) == self.last, "a new leader goes on from all that there was"
        recorder = begin(self.config, stages_of, state, view.commit_no)
        assert isinstance(recorder, Recording)
        writer = Unsteady(self.store, epoch, view.commit_no, self.random, often)
        service = EngineThread(state, view, stages_of(self.config).policy, writer, lambda _: None, self.now, recorder)
        service.start()
        try:
            for event in [*(agent.seen_with(8) for agent in map(Eight, self.agents)), *self.created()]:
                await self.insist(service, event)
            for _ in range(rounds):
                events = [self.drawn() for _ in range(self.random.randint(1, 3))]
                waiting = [service.handle(event) for event in events]
                asked = service.ask(lambda *_: None) if self.random.random() < 0.3 else None
                for reply in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LIMIT):
                    assert not isinstance(reply, Exception) or isinstance(reply, Refused | NotCommitted), reply
                if asked is not None:
                    await asked
        finally:
            service.stop()
            assert await asyncio.wait_for(service.stopped, LIMIT) is None
            recorder.close()
        self.last = kept(state)

    def created(self) -> list[Event]:
        if self.last:
            return []
        proxy = VcPolicy(proxy_after_us=40_000)
        return [
            VcRequested(name, True, (Quota(POOL, "node", 1),), policy=proxy if name == "C" else VcPolicy()) for name in NAMES
        ]

    async def insist(self, service: EngineThread, event: Event) -> None:
        while True:
            try:
                await asyncio.wait_for(service.handle(event), LIMIT)
            except NotCommitted:
                continue
            return

    def drawn(self) -> Event:
        """By ids that there may have been."""
        draw, vc = self.random, self.random.choice(NAMES)
        posting, exchange = draw.randint(1, 1 + len(self.store.tables["exchange_posting"].records)), draw.randint(1, 9)
        match draw.randrange(8):
            case 0:
                return WithdrawRequested(posting, vc)
            case 1:
                return AcceptRequested(vc, f"take {draw.randrange(40)}", posting)
            case 2:
                return ReturnRequested(exchange, draw.choice((vc, "")))
            case _:
                kind = draw.choice(list(PostingKind))
                begin = draw.choice((0, self.time + draw.randrange(60_000)))
                window = Cells(POOL, "node", 1, begin, (begin or self.time) + draw.randrange(1_000, 120_000))
                swap = Cells(POOL, "node", 1, window.end_us, window.end_us + 50_000) if draw.random() < 0.2 else None
                bid = draw.choice((None, draw.randrange(10**7))) if swap is None else None
                return PostRequested(vc, f"post {draw.randrange(200)}", kind, window, bid, swap)


def kept(state: State) -> dict[str, object]:
    """All of it, but for the time of the last step, which is not written where nothing else changed."""
    clock = replace(state.cluster, clock_us=0)
    return {**state.snapshot(), "rows": {table.name: dict(table.rows) for table in state.tables()[1:]}, "cluster": clock}


class Eight:
    """An agent whose node has eight devices in two sockets, as cells want them."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def seen_with(self, devices: int) -> Any:
        seen = self.agent.seen()
        return type(seen)(seen.name, seen.boot_id, inventory(Vector(8000, 8192, devices)), seen.runs)


@pytest.mark.parametrize(("seed", "exchange"), [(1, "balanced"), (2, "auction"), (3, "balanced"), (4, "none")])
async def test_a_recording_of_random_trade_over_three_leaderships_comes_out_the_same(
    tmp_path: Path, seed: int, exchange: str
) -> None:
    market = Market(seed, tmp_path / "recording", exchange)
    for _ in range(3):
        await market.lead(60)
    summary = replayed(tmp_path / "recording")
    assert (summary.sections, summary.unended) == (3, 0)
    assert summary.outcomes["undone"] > 5
    records = {name: list(table.records.values()) for name, table in market.store.tables.items()}
    assert sum(entry["device_us"] for entry in records["exchange_ledger"]) == 0
    for row in records["exchange_surplus"]:
        assert row["device_us"] == sum(e["device_us"] for e in records["exchange_ledger"] if e["vc"] == row["vc"])
    assert len(records["exchange"]) > 3
    assert {x["state"] for x in records["exchange"]} >= {3}, "windows were closed"
    if exchange != "none":
        assert any(x["offer"] and x["request"] for x in records["exchange"]), "the arbiter made no deal"


async def test_what_is_sent_again_is_answered_as_the_first_time_also_after_its_end(tmp_path: Path) -> None:
    """The engine has forgotten it; the database has not, and says so."""
    market = Market(1, tmp_path / "recording", "none")
    await market.lead(0, often=0)
    epoch = memory.take(market.store, "site", 60)
    assert epoch is not None
    state, view, writer = load_state(market.store, epoch, market.config)
    service = EngineThread(state, view, stages_of(market.config).policy, writer, lambda _: None, market.now)
    service.start()
    end = market.time + 10**9
    offer = PostRequested("A", "x", PostingKind.OFFER, Cells(POOL, "node", 1, 0, end))
    request = PostRequested("B", "x", PostingKind.REQUEST, Cells(POOL, "node", 1, end, end + 9))
    try:
        ids = [(await service.handle(event)).posting for event in (offer, request)]  # type: ignore[union-attr]
        taken = await service.handle(AcceptRequested("B", "take", ids[0]))
        await service.handle(WithdrawRequested(ids[0], "A"))
        await service.handle(WithdrawRequested(ids[1], "B"))
        await service.handle(ReturnRequested(taken.exchanges[0]))  # type: ignore[union-attr]
        wait_for(lambda: not (state.postings.rows or state.exchanges.rows), LIMIT)
        again = [service.handle(event) for event in (request, offer, AcceptRequested("B", "take", ids[0]))]
        fresh = service.handle(PostRequested("A", "y", PostingKind.OFFER, Cells(POOL, "node", 1, 0, end)))
        assert [(await reply).posting for reply in again[:2]] == ids[::-1]  # type: ignore[union-attr]
        assert await again[2] == taken
        assert (await fresh).posting == 3  # type: ignore[union-attr]
        other = PostRequested("A", "x", PostingKind.OFFER, Cells(POOL, "node", 1, 0, end - 1))
        with pytest.raises(Refused, match="already used for offer 1"):
            await service.handle(other)
    finally:
        service.stop()
        await service.stopped
    assert len(market.store.tables["exchange_posting"].records) == 3
