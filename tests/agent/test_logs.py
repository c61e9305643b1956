"""The log of a run: what is read, where that ends, and what is refused."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.processes import logs as logs_module
from node_agent.processes.logs import PIECE, LogRefused, Logs
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from tests.agent.conftest import until

KEY = RunKey(7, 1)
LIMIT = 20


class Runs:
    """What an agent would know of its runs, and the folders of these."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[RunKey, RunRecord] = {}
        self.logs = Logs(self.records.get, self.path)

    def path(self, key: RunKey = KEY) -> Path:
        return self.folder / f"{key}.log"

    def become(self, phase: RunPhase, pid: int | None = None) -> None:
        known = self.records.get(KEY, RunRecord(KEY, phase))
        self.records[KEY] = replace(known, phase=phase, pid=known.pid if pid is None else pid)
        self.logs.wake()

    async def whole(self, offset: int = 0, follow: bool = False) -> bytes:
        first, *rest = await self.pieces(offset, follow)
        assert first == b"", "first it is said that the log is there"
        return b"".join(rest)

    async def pieces(self, offset: int = 0, follow: bool = False) -> list[bytes]:
        async with asyncio.timeout(LIMIT), aclosing(self.logs.read(KEY, offset, follow)) as pieces:
            return [piece async for piece in pieces]

    async def refused(self, offset: int = 0, follow: bool = False) -> str:
        with pytest.raises(LogRefused) as caught:
            await self.pieces(offset, follow)
        return caught.value.reason


def open_below(folder: Path) -> list[str]:
    paths = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    return [path for path in paths if path.startswith(str(folder))]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    made.become(RunPhase.RUNNING, pid=1)
    yield made
    made.logs.close()
    until(lambda: not open_below(tmp_path))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[None]":
    """Nothing is looked at by itself for as long as a test lasts; gives what has an item whenever a wait begins."""
    begun: asyncio.Queue[None] = asyncio.Queue()
    wait = logs_module._Listener.wait

    async def for_long(self: logs_module._Listener, _: float) -> None:
        begun.put_nowait(None)
        await wait(self, 1000)

    monkeypatch.setattr(logs_module._Listener, "wait", for_long)
    return begun


async def test_any_bytes_from_any_offset_in_pieces(runs: Runs) -> None:
    data = os.urandom(3 * PIECE + 17) + b"\0\xff\xfe\r\n"
    runs.path().write_bytes(data)
    for follow in (False, True):
        if follow:
            runs.become(RunPhase.ENDED)
        for offset in (0, 1, PIECE, len(data) - 1, len(data)):
            assert await runs.whole(offset, follow) == data[offset:]
        assert [len(piece) for piece in await runs.pieces(5, follow)] == [0, PIECE, PIECE, PIECE, 17]


@pytest.mark.parametrize("follow", [False, True])
async def test_an_empty_log(runs: Runs, follow: bool) -> None:
    runs.path().touch()
    if follow:
        runs.become(RunPhase.ENDED)
    assert await runs.pieces(follow=follow) == [b""]
    assert await runs.refused(1, follow) == "OFFSET"


async def test_without_follow_it_ends_where_the_log_ended_when_it_was_asked_for(runs: Runs) -> None:
    runs.path().write_bytes(b"x" * (PIECE + 1))
    got = []
    async with aclosing(runs.logs.read(KEY, 0, False)) as pieces:
        async for piece in pieces:
            got.append(len(piece))
            with runs.path().open("ab") as file:
                file.write(b"y" * 2 * PIECE)  # faster than it is read
    assert got == [0, PIECE, 1]


async def test_followed_to_the_end_of_the_run(runs: Runs, waits: "asyncio.Queue[None]") -> None:
    """The end of the run wakes it, and what was written last is read."""
    runs.path().write_bytes(b"one\n")
    async with asyncio.timeout(LIMIT), aclosing(runs.logs.read(KEY, 0, True)) as pieces:
        assert [await anext(pieces), await anext(pieces)] == [b"", b"one\n"]
        last = asyncio.create_task(anext(pieces))
        await waits.get()
        with runs.path().open("ab") as file:
            file.write(b"two\n")
        runs.become(RunPhase.ENDED)
        assert await last == b"two\n"
        assert await anext(pieces, None) is None


async def test_followed_while_it_grows(runs: Runs) -> None:
    runs.path().touch()
    async with asyncio.timeout(LIMIT), aclosing(runs.logs.read(KEY, 0, True)) as pieces:
        assert await anext(pieces) == b""
        with runs.path().open("ab", buffering=0) as file:
            for number in range(4):
                file.write(b"%d\n" % number)
                assert await anext(pieces) == b"%d\n" % number


async def test_other_runs_do_not_wake_it(runs: Runs, waits: "asyncio.Queue[None]") -> None:
    runs.path().touch()
    async with aclosing(runs.logs.read(KEY, 0, True)) as pieces:
        await anext(pieces)
        waiting = asyncio.create_task(anext(pieces))
        await waits.get()
        runs.path().write_bytes(b"new")
        for _ in range(10):
            runs.logs.wake()
            await asyncio.sleep(0.01)
        assert not waiting.done()
        runs.become(RunPhase.ENDED)
        assert await waiting == b"new"


async def test_a_run_that_has_not_started(runs: Runs, waits: "asyncio.Queue[None]") -> None:
    runs.become(RunPhase.STARTING, pid=0)
    assert await runs.refused() == "NOT_STARTED"
    async with asyncio.timeout(LIMIT), aclosing(runs.logs.read(KEY, 0, True)) as pieces:
        assert await anext(pieces) == b"", "it is waited for"
        waiting = asyncio.create_task(anext(pieces))
        await waits.get()
        runs.path().write_bytes(b"hello")
        runs.become(RunPhase.RUNNING, pid=5)
        assert await waiting == b"hello"


async def test_a_run_that_starts_and_ends_while_its_log_is_looked_for(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.become(RunPhase.STARTING, pid=0)
    looked = runs.logs._open

    async def late(key: RunKey) -> object:
        try:
            return await looked(key)
        finally:
            if not runs.path().exists():
                runs.path().write_bytes(b"all of it")
                runs.become(RunPhase.ENDED, pid=5)

    monkeypatch.setattr(runs.logs, "_open", late)
    assert await runs.whole(follow=True) == b"all of it"


@pytest.mark.parametrize("follow", [False, True])
async def test_a_run_that_could_not_be_started_wrote_nothing(runs: Runs, follow: bool) -> None:
    runs.become(RunPhase.ENDED, pid=0)
    assert await runs.pieces(follow=follow) == [b""]
    assert await runs.refused(1, follow) == "OFFSET"


@pytest.mark.parametrize("follow", [False, True])
async def test_a_run_that_is_forgotten_may_have_left_its_log(runs: Runs, follow: bool) -> None:
    runs.path().write_bytes(b"old")
    runs.records.clear()
    assert await runs.whole(follow=follow) == b"old"
    runs.path().unlink()
    assert await runs.refused(follow=follow) == "LOG_GONE"


async def test_cut_short_by_its_job(runs: Runs) -> None:
    """What was sent is not there any more, so it is told, and not guessed, how to go on."""
    runs.path().write_bytes(b"a long line\n")
    async with asyncio.timeout(LIMIT), aclosing(runs.logs.read(KEY, 0, True)) as pieces:
        assert [await anext(pieces), await anext(pieces)] == [b"", b"a long line\n"]
        os.truncate(runs.path(), 0)
        with pytest.raises(LogRefused) as caught:
            await anext(pieces)
    assert caught.value.reason == "OFFSET"
    assert await runs.refused(12, follow=True) == "OFFSET"
    assert await runs.whole() == b""


async def test_moved_away_it_is_followed_where_the_job_goes_on_writing(runs: Runs) -> None:
    with runs.path().open("ab", buffering=0) as job:
        job.write(b"one\n")
        async with asyncio.timeout(LIMIT), aclosing(runs.logs.read(KEY, 0, True)) as pieces:
            assert [await anext(pieces), await anext(pieces)] == [b"", b"one\n"]
            runs.path().rename(runs.folder / "rotated")
            job.write(b"two\n")
            assert await anext(pieces) == b"two\n"
    assert await runs.refused() == "LOG_GONE"


@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder"])
@pytest.mark.parametrize("follow", [False, True])
async def test_only_a_plain_file_is_a_log(runs: Runs, what: str, follow: bool) -> None:
    """The folder belongs to the job, which may put anything there."""
    secret = runs.folder / "secret"
    secret.write_text("of somebody else")
    match what:
        case "a link":
            runs.path().symlink_to(secret)
        case "a pipe":
            os.mkfifo(runs.path())
        case "a folder":
            runs.path().mkdir()
    assert await runs.refused(follow=follow) == "LOG_GONE"


async def test_a_reader_that_leaves_while_the_disk_takes_its_time(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on meanwhile, and the file is closed once the read is over."""
    runs.path().write_bytes(b"x")
    read, write = os.pipe()
    reading = os.read

    def slow(descriptor: int, count: int) -> bytes:
        monkeypatch.undo()
        reading(read, 1)
        return reading(descriptor, count)

    async with asyncio.timeout(LIMIT):
        pieces = runs.logs.read(KEY, 0, True)
        assert await anext(pieces) == b""
        monkeypatch.setattr(os, "read", slow)
        waiting = asyncio.create_task(anext(pieces))
        while os.read is slow:
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        os.write(write, b".")
    os.close(read)
    os.close(write)
    until(lambda: not open_below(runs.folder))
