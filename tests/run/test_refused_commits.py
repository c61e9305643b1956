"""A store that refuses commits: who is at fault is told or set aside, all others are served, and the leader goes on leading."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    Event,
    Order,
    ReleaseRequested,
    Reply,
    RunStarted,
    Submitted,
    UpdateRequested,
)
from scheduler_service.core.model import EventKind, Job, JobClass, JobEvent, JobSpec, JobState, Reason, RunKey
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.state import State
from scheduler_service.database import live_rows
from scheduler_service.engine_settings import stages_of
from scheduler_service.memory_database import MemoryWriter
from scheduler_service.run.engine_thread import EngineThread
from scheduler_service.run.ports import CommitRefused
from scheduler_service.run.recording.record import Recorder
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory
from tests.core.driver import EPOCH
from tests.run.live import CONFIG, LIMIT, Agent, Site, load_state
from tests.run.recorded import recorder, replayed
from tests.thorough import examples

Refuses = Callable[[Sequence[Change]], bool]


def never(_changes: Sequence[Change]) -> bool:
    return False


def starts(*job_ids: int) -> Refuses:
    """Of commits in which one of these jobs is given a place."""
    return lambda changes: any(c.table == "run" and c.old is None and c.key[0] in job_ids for c in changes)


def times_out(job_id: int) -> Refuses:
    """Of commits in which the job's run is told to leave."""
    return lambda changes: any(
        c.table == "run" and c.key[0] == job_id and c.new.stop_us is not None and c.old.stop_us is None for c in changes
    )


class Refusing(MemoryWriter):
    """The writer over the store in memory, which refuses what it is told to refuse, as often as it comes."""

    def __init__(self, store: Memory, epoch: int, commit_no: int, refuses: Refuses = never) -> None:
        super().__init__(store, epoch, commit_no)
        self.refuses = refuses
        self.refused = 0

    def commit(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
        if self.refuses(changes):
            self.refused += 1
            raise CommitRefused("it breaks a rule", "some_rule")
        return super().commit(changes, events)


class Cluster:
    """A service with one node of four devices, and a clock that is set."""

    def __init__(self) -> None:
        self.store = Memory()
        epoch = memory.take(self.store, "tester", 60)
        assert epoch is not None
        self.state, self.view, _ = load_state(self.store, epoch, CONFIG)
        self.writer = Refusing(self.store, epoch, self.view.commit_no)
        self.agent, self.orders, self.now = Agent("n1"), list[Order](), EPOCH
        self.service = EngineThread(
            self.state, self.view, stages_of(CONFIG).policy, self.writer, self.orders.extend, lambda: self.now, Recorder()
        )

    async def ask(self, *events: Event) -> list[Reply | BaseException]:
        """All in one batch, as far as possible."""
        asked = [self.service.handle(event) for event in events]
        return list(await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), LIMIT))

    async def submit(self, *devices: int, limit: float = 0) -> list[Reply | BaseException]:
        specs = (JobSpec(("true",), Vector(100, 64, n), time_limit_us=round(limit * SECOND)) for n in devices)
        return await self.ask(*(Submitted("ada", "", spec) for spec in specs))

    async def obey(self) -> None:
        """The agent does what it was told, and reports."""
        await self.settle()
        given, self.orders[:] = list(self.orders), []
        for order in given:
            self.agent.obey(order, Random(1))
        await self.report()

    async def report(self) -> None:
        spool, self.agent.spool = self.agent.spool, []
        for report in spool:
            assert not isinstance((await self.ask(report))[0], Exception)
        await self.settle()

    async def end(self, job_id: int) -> None:
        self.agent.end(max(key for key in self.agent.runs if key.job_id == job_id))
        await self.report()

    async def pass_time(self, seconds: float) -> None:
        """What is due by then has been looked at."""
        self.now += round(seconds * SECOND)
        await self.settle()

    async def settle(self) -> None:
        """Reports that change nothing are taken: so has been all that came before, and all that was due."""
        for _ in range(2):
            await self.ask(RunStarted("n1", "another boot", 1, RunKey(1, 1)))

    def job(self, job_id: int) -> Job:
        return self.state.jobs.rows[job_id]

    def story(self, job_id: int) -> list[EventKind]:
        return [event.kind for event, _ in memory.story(self.store, job_id)]


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    made.service.start()
    try:
        await made.ask(made.agent.seen())
        yield made
        assert not made.service.stopped.done(), "the leader has stepped down"
    finally:
        made.service.stop()
        assert await asyncio.wait_for(made.service.stopped, LIMIT) is None
    check_stored(made.store, made.state)


def check_stored(store: Memory, state: State) -> None:
    """The state in memory is what a new leader would load, but for the time, which alone is no reason to commit."""
    stored = {(table, key): row for table, key, row in live_rows(memory.load(store))}
    tables = [table for table in state.tables() if table.durable and table.name not in ("cluster", "exchange_ledger")]
    assert {(table.name, key): row for table in tables for key, row in table.rows.items()} == stored


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


# ---- requests -------------------------------------------------------------------------------------------------------------


async def test_the_caller_at_fault_is_refused_by_a_reference_and_the_others_of_its_batch_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as c:
        c.writer.refuses = lambda changes: any(x.table == "run" and x.new.demand.devices == 2 for x in changes)
        one, refusal, three = await c.submit(1, 2, 1)
        assert isinstance(refusal, CommitRefused)
        served = [reply.job_id for reply in (one, three) if isinstance(reply, Accepted)]
        assert served == [1, 2]
        (said,) = errors(caplog)
        assert refusal.reference in said
        assert "refused Submitted user=ada" in said
        assert [c.job(job).state for job in served] == [JobState.STARTING] * 2
        c.writer.refuses = never
        assert isinstance((await c.submit(1))[0], Accepted)


async def test_a_request_that_lets_another_job_start_is_not_to_blame_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as c:
        await c.submit(4, 4, 2)
        await c.obey()
        c.writer.refuses = starts(2)
        assert await c.ask(CancelRequested(1)) == [Accepted(1)]
        await c.obey()
        assert c.job(2).held
        assert c.job(2).reason is Reason.HELD
        assert c.story(2)[-1] is EventKind.SET_ASIDE
        assert c.job(3).state is JobState.STARTING, "who waited behind it starts"
        (said,) = errors(caplog)
        reference = said.partition("reference ")[2].partition(":")[0]
        assert reference in c.job(2).detail
        assert "some_rule" in c.job(2).detail
        assert "ebb release 2" in said
        assert c.view.jobs[2].set_aside == c.job(2).set_aside == c.job(2).detail


async def test_a_report_is_counted_whatever_its_consequences_are() -> None:
    async with cluster() as c:
        await c.submit(4, 4)
        await c.obey()
        c.writer.refuses = starts(2)
        await c.end(1)
        assert 1 not in c.state.jobs.rows
        assert c.job(2).set_aside


async def test_a_released_job_is_tried_again() -> None:
    async with cluster() as c:
        await c.submit(4, 4)
        await c.obey()
        c.writer.refuses = starts(2)
        await c.end(1)
        (again,) = await c.ask(ReleaseRequested(2))
        assert isinstance(again, CommitRefused), "the one who asked is told"
        assert c.job(2).set_aside
        c.writer.refuses = never
        assert await c.ask(ReleaseRequested(2)) == [Accepted(2)]
        assert c.job(2).state is JobState.STARTING
        assert not c.job(2).set_aside
        assert c.story(2)[-2:] == [EventKind.RELEASED, EventKind.PLACED]


async def test_a_request_that_cannot_be_stored_by_itself_changes_nothing() -> None:
    async with cluster() as c:
        await c.submit(1)
        await c.obey()
        c.writer.refuses = lambda changes: any(x.table == "job" and x.new.priority == 7 for x in changes)
        refused, fine = await c.ask(UpdateRequested(1, priority=7), UpdateRequested(1, time_limit_us=5 * SECOND))
        assert isinstance(refused, CommitRefused)
        assert fine == Accepted(1)
        assert (c.job(1).priority, c.job(1).time_limit_us) == (0, 5 * SECOND)


# ---- timers ---------------------------------------------------------------------------------------------------------------


async def test_the_job_of_a_timer_is_set_aside_and_the_timer_does_not_come_again(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as c:
        await c.submit(1, 1, limit=10)
        await c.obey()
        c.writer.refuses = times_out(1)
        await c.pass_time(11)
        assert c.job(1).set_aside
        assert c.job(1).state is JobState.RUNNING, "its run goes on"
        assert c.job(2).state is JobState.STOPPING, "the timers of others come"
        refused = c.writer.refused
        for _ in range(20):
            await c.pass_time(100)
        assert c.writer.refused == refused
        assert len(errors(caplog)) == 1
        await c.end(1)
        assert 1 not in c.state.jobs.rows, "it has ended"


async def test_the_timer_of_a_released_job_comes_again() -> None:
    async with cluster() as c:
        await c.submit(1, limit=10)
        await c.obey()
        c.writer.refuses = times_out(1)
        await c.pass_time(11)
        c.writer.refuses = never
        await c.ask(ReleaseRequested(1))
        await c.pass_time(2)
        assert c.job(1).state is JobState.STOPPING


async def test_a_timer_whose_job_cannot_even_be_set_aside_is_left_alone_for_longer_and_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as c:
        await c.submit(1, limit=10)
        await c.obey()
        c.writer.refuses = lambda changes: any(x.table == "job" and x.key == 1 for x in changes)
        await c.pass_time(11)
        for _ in range(60):
            await c.pass_time(60)
        assert 8 <= len(errors(caplog)) <= 16, "six in the first minutes, then after 64, 128 ... 600 s"
        assert isinstance((await c.submit(1))[0], Accepted)
        c.writer.refuses = never
        await c.pass_time(600)
        assert c.job(1).state is JobState.STOPPING


async def test_a_store_that_refuses_everything_ends_no_leadership_and_catches_up(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as c:
        await c.submit(4, 1, limit=10)
        await c.obey()
        c.writer.refuses = lambda _changes: True
        await c.pass_time(11)
        replies = await c.submit(1, 1, 1)
        assert all(isinstance(reply, CommitRefused) for reply in replies)
        c.writer.refuses = never
        assert isinstance((await c.submit(1))[0], Accepted)
        await c.pass_time(600)
        assert c.job(1).state is JobState.STOPPING


# ---- all of it at random --------------------------------------------------------------------------------------------------


class Guilty:
    """Refuses by what is written of some jobs, which it chooses by their requests: for good, as a constraint does."""

    def __init__(self, random: Random, often: float) -> None:
        self._random, self._often = random, often
        self._requests: dict[int, str] = {}
        self._chosen: dict[str, str] = {}

    def fate(self, job_id: int) -> str:
        request = self._requests[job_id]
        if request not in self._chosen:
            fates = ("starts", "leaves", "ends", "anything later")
            self._chosen[request] = self._random.choice(fates) if self._random.random() < self._often else ""
        return self._chosen[request]

    def __call__(self, changes: Sequence[Change]) -> bool:
        self._requests |= {c.key: c.new.request_id for c in changes if c.table == "job"}
        return any(self._refuses(change) for change in changes)

    def _refuses(self, change: Change) -> bool:
        old, new = change.old, change.new
        if change.table == "job" and old is not None:
            return self.fate(change.key) == "anything later" and not (new.set_aside or new.held or new.cancel_requested)
        if change.table != "run":
            return False
        match self.fate(change.key[0]):
            case "starts":
                return old is None
            case "leaves":
                return old is not None and new.stop_us is not None and old.stop_us is None
            case "ends":
                return old is not None and new.ended_us is not None and new.exit_code == 1
        return False


class RefusingSite(Site):
    """A site over a store that refuses. `refuses` is there for all leaderships."""

    def __init__(self, seed: int, refuses: Refuses) -> None:
        super().__init__(seed, often=0)
        self.refuses = refuses
        self.states: list[State] = []

    def writer(self, epoch: int, commit_no: int) -> MemoryWriter:
        return Refusing(self.store, epoch, commit_no, self.refuses)

    def seen(self, state: State, _commit_no: int) -> Recorder:
        self.states.append(state)
        return Recorder()


@pytest.mark.parametrize("seed", range(examples(3)))
async def test_constraints_that_some_jobs_break_harm_nobody_else(seed: int) -> None:
    guilty = Guilty(Random(seed), 0.15)
    site = RefusingSite(seed, guilty)
    for _ in range(2):
        assert await site.lead(site.seen, 25) is None, "the leader has stepped down"
        check_stored(site.store, site.states[-1])
    state = site.states[-1]
    for job in state.jobs.rows.values():
        claims = job.spec.job_class is JobClass.TRIAL  # it may be a victim of its that breaks something
        assert not job.set_aside or claims or guilty.fate(job.id), f"{job} is set aside, and broke nothing"
    ended = sum(job["ended_us"] is not None for job in site.store.tables["job"].records.values())
    assert ended > 15, "the others go on"


@pytest.mark.parametrize("seed", range(examples(3)))
async def test_refusals_by_chance_lose_nothing_and_end_no_leadership(seed: int) -> None:
    random = Random(seed)
    site = RefusingSite(seed, lambda _changes: random.random() < 0.2)
    for _ in range(2):
        assert await site.lead(site.seen, 25) is None
        check_stored(site.store, site.states[-1])
    accepted = {record["request_id"] for record in site.store.tables["job"].records.values()}
    assert site.accepted <= accepted, "who was told that it is accepted finds it"


async def test_steps_in_parts_are_replayed(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("recorded") / "recording"
    guilty = Guilty(Random(1), 0.2)
    site = RefusingSite(1, guilty)
    made = []

    def of(state: State, commit_no: int) -> Recorder:
        made.append(recorder(path)(state, commit_no))
        return made[0]

    assert await site.lead(of, 30) is None
    made[0].close()
    assert '"SteppedInPart"' in path.read_text()
    summary = replayed(path)
    assert summary.commit_no == site.store.commit_no
