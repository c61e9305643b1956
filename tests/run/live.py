"""A service in this process, over the store in memory, with agents that obey: for tests of what a service does over time."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from scheduler_service import startup
from scheduler_service.config import Config
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    Event,
    KnownRun,
    NodeSeen,
    NodeSilent,
    Order,
    Reply,
    RunExited,
    RunStarted,
    Stopped,
    Submitted,
)
from scheduler_service.core.model import JobClass, JobEvent, JobSpec, RunKey, RunPhase
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.state import State
from scheduler_service.database import Writer
from scheduler_service.engine_settings import stages_of
from scheduler_service.memory_database import MemoryWriter, open_for_leader
from scheduler_service.run.engine_thread import EngineThread, NotLeading
from scheduler_service.run.ports import CommitRefused, NotCommitted
from scheduler_service.run.read_model import View
from scheduler_service.run.recording.record import Recorder
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory
from tests.core.driver import EPOCH, inventory

LIMIT = 30
CONFIG = Config(database="postgresql://nowhere", earmark_ttl=0.001)


def load_state(store: Memory, epoch: int, config: Config) -> tuple[State, View, Writer]:
    """As startup.load_state, of what the store in memory holds."""
    return startup.load_state(partial(open_for_leader, store, epoch), config)


class Flaky(MemoryWriter):
    """The writer over the store in memory, which now and then does not, as PostgreSQL might not."""

    def __init__(self, store: Memory, epoch: int, commit_no: int, random: Random, often: float) -> None:
        super().__init__(store, epoch, commit_no)
        self._random = random
        self._often = often

    def commit(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        if self._random.random() < self._often:
            raise self._random.choice((NotCommitted("no database"), CommitRefused("a constraint")))
        return super().commit(changes, events)


@dataclass
class Agent:
    """An agent of a node: what it is told to start starts and ends, what it is told to stop yields."""

    name: str
    boot: int = 1
    sequence: int = 0
    runs: dict[RunKey, RunPhase] = field(default_factory=dict)
    spool: list[Event] = field(default_factory=list)

    def report(self, kind: Callable[..., Event], key: RunKey, **facts: object) -> None:
        self.sequence += 1
        self.spool.append(kind(self.name, f"boot-{self.boot}", self.sequence, key, **facts))

    def obey(self, order: Order, random: Random) -> None:
        stops = isinstance(order.desired, Stopped)
        if not stops and order.key not in self.runs:
            self.runs[order.key] = RunPhase.RUNNING
            self.report(RunStarted, order.key, log_path="/log")
        elif stops and self.runs.get(order.key) is not RunPhase.ENDED:
            self.end(order.key, yielded=random.random() < 0.7, exit_signal=15)

    def end(self, key: RunKey, **how: object) -> None:
        self.runs[key] = RunPhase.ENDED
        self.report(RunExited, key, **how)

    def seen(self) -> NodeSeen:
        known = tuple(KnownRun(key, phase) for key, phase in sorted(self.runs.items()))
        return NodeSeen(self.name, f"boot-{self.boot}", inventory(Vector(8000, 8192, 4)), known)


class Site:
    """One cluster over its leaderships. `often`: how often a commit does not succeed."""

    def __init__(self, seed: int, often: float = 0.05, config: Config = CONFIG) -> None:
        self.store = Memory()
        self.random = Random(seed)
        self.often = often
        self.config = config
        self.agents = [Agent(f"n{i}") for i in range(3)]
        self.submitted = 0
        self.accepted: set[str] = set()
        """The request ids of submits that were accepted."""
        self.time = EPOCH

    def now(self) -> int:
        self.time += 700
        return self.time

    async def lead(
        self,
        recorder_of: Callable[[State, int], Recorder],
        rounds: int,
        end: Callable[[EngineThread], None] = EngineThread.stop,
    ) -> Exception | None:
        """One leadership of so many rounds of load; why it ended."""
        epoch = memory.take(self.store, "site", 60)
        assert epoch is not None
        state, view, _writer = load_state(self.store, epoch, self.config)
        writer = self.writer(epoch, view.commit_no)
        orders: list[Order] = []
        recorder = recorder_of(state, view.commit_no)
        service = EngineThread(state, view, stages_of(self.config).policy, writer, orders.extend, self.now, recorder)
        service.start()
        try:
            for agent in self.agents:
                await self._insist(service, agent.seen())
            for _ in range(rounds):
                await self._round(service, orders)
            end(service)
            await self._ask(service, [self._submit()])
        finally:
            service.stop()
            why = await asyncio.wait_for(service.stopped, LIMIT)
        return why

    def writer(self, epoch: int, commit_no: int) -> MemoryWriter:
        return Flaky(self.store, epoch, commit_no, self.random, self.often)

    async def _round(self, service: EngineThread, orders: list[Order]) -> None:
        asked = [self._submit() for _ in range(self.random.randrange(4))]
        if self.random.random() < 0.2:
            asked.append(CancelRequested(self.random.randint(1, self.submitted + 2)))
        if self.random.random() < 0.05:
            asked.append(NodeSilent(self.random.choice(self.agents).name))
        await self._ask(service, asked)
        given, orders[:] = list(orders), []
        for order in given:
            self.agents[order.node - 1].obey(order, self.random)
        for agent in self.agents:
            for key in [key for key, phase in agent.runs.items() if phase is RunPhase.RUNNING]:
                if self.random.random() < 0.3:
                    agent.end(key, exit_code=self.random.choice((0, 0, 1)))
            if self.random.random() < 0.05:
                agent.boot, agent.sequence, agent.spool, agent.runs = agent.boot + 1, 0, [], {}
                await self._insist(service, agent.seen())
            spool, agent.spool = agent.spool, []
            for report in spool:
                await self._insist(service, report)
            if self.random.random() < 0.1:
                await self._insist(service, agent.seen())

    def _submit(self) -> Submitted:
        self.submitted += 1
        number = self.submitted if self.random.random() < 0.9 else self.random.randint(1, self.submitted)
        shape = Random(number)
        spec = JobSpec(
            ("true",),
            Vector(shape.choice((500, 1000)), 64, shape.randrange(6)),
            shape.choice(list(JobClass)),
            shape.choice((0, 1_000_000)),
            environment=(("PASSWORD", f"secret-{number % 3}"), ("HOME", "/root")),
            inherited=(("PATH", f"/home/secret-{number % 3}/bin"),),
        )
        return Submitted("ada", f"request {number}", spec)

    async def _ask(self, service: EngineThread, events: Iterable[Event]) -> list[Reply | BaseException]:
        """All at once; what cannot be done now is not done."""
        asked = list(events)
        try:
            waiting = [service.handle(event) for event in asked]
        except NotLeading:
            return []
        replies = list(await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LIMIT))
        for event, reply in zip(asked, replies, strict=True):
            if isinstance(event, Submitted) and isinstance(reply, Accepted):
                self.accepted.add(event.request_id)
        return replies

    async def _insist(self, service: EngineThread, event: Event) -> None:
        """Until it is in the state, or nobody leads; a node that is not known by now has its reports refused."""
        while True:
            reply = (await self._ask(service, [event]) or [NotLeading()])[0]
            if not isinstance(reply, NotCommitted | CommitRefused):
                assert not isinstance(reply, Exception) or isinstance(reply, Refused | NotLeading), reply
                return
