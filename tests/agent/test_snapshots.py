"""Snapshots that an agent fetches and unpacks, and results that it sends: also over connections and agents that end."""

import asyncio
import io
import os
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import IO

import pytest

from ebb_common.archive import Archive, pack, unpack
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import LaunchSpec, RunKey
from node_agent.user_files.results import Results
from node_agent.user_files.snapshots import KEEP, Snapshots
from node_agent.user_files.transfers import Transfers
from tests.agent.conftest import AgentProcess, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler, gang

Start = Callable[..., AgentProcess]


def archive(scheduler: FakeScheduler, **files: str) -> str:
    made = pack(Path(), (), [(name.replace("__", "/"), text.encode()) for name, text in files.items()])
    return store(scheduler, made)


def store(scheduler: FakeScheduler, made: Archive) -> str:
    scheduler.snapshots[made.digest] = made.data
    return made.digest


def output(scheduler: FakeScheduler, job: int, run: int = 1) -> str:
    assert scheduler.exited(job, run).exit_code == 0
    return Path(scheduler.started(job, run).log_path).read_text()


def test_a_run_starts_in_a_copy_of_its_snapshots(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    code = archive(scheduler, hello="one", sub__x="two")
    more = archive(scheduler, sub__y="three", hello="over")
    scheduler.start(1, "sh", "-c", "cat hello sub/x sub/y; pwd; echo $EBB_SNAPSHOT_DIR; touch new", snapshots=[code, more])
    folder = run_directory(state, 1) / "code"
    assert output(scheduler, 1) == f"overtwothree{folder}\n{folder}\n"
    scheduler.start(2, "sh", "-c", "ls", snapshots=[code, more])
    assert output(scheduler, 2) == "hello\nsub\n", "it has a copy of its own"
    assert scheduler.fetched == [(code, 0), (more, 0)], "each was fetched once"


def test_with_a_working_directory_the_snapshot_is_beside_it(agent: Start, scheduler: FakeScheduler, tmp_path: Path) -> None:
    agent()
    scheduler.connected()
    code = archive(scheduler, hello="one")
    scheduler.start(1, "sh", "-c", "pwd; cat $EBB_SNAPSHOT_DIR/hello", snapshots=[code], working_directory=str(tmp_path))
    assert output(scheduler, 1) == f"{tmp_path}\none"


def test_a_large_one_comes_in_pieces_and_goes_on_where_it_was(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    scheduler.piece, scheduler.halt_at = 1000, 2000
    scheduler.fetching.clear()
    made = pack(Path(), (), [("noise", os.urandom(5000))])
    digest = store(scheduler, made)
    first = agent()
    scheduler.connected()
    scheduler.start(1, "sha256sum", "noise", snapshots=[digest])
    scheduler.wait(lambda: scheduler.fetched[-1:] == [(digest, 2000)])
    part = state / "snapshots" / f"{digest}.part"
    first.kill()
    assert part.stat().st_size == 2000
    scheduler.fetching.set()
    agent()
    scheduler.connected(2)
    assert "noise" in output(scheduler, 1)
    assert [at for _, at in scheduler.fetched[:4]] == [0, 1000, 2000, 2000], "what was written was kept"
    assert not part.exists()


def test_what_is_not_what_its_name_says_is_refused(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    digest = sha256(b"something").hexdigest()
    scheduler.snapshots[digest] = b"something else"
    agent()
    scheduler.connected()
    scheduler.start(1, "true", snapshots=[digest])
    error = scheduler.exited(1).launch_error
    assert "its snapshot cannot be used: what was fetched has the digest" in error
    assert "n1" in error
    assert list((state / "snapshots").iterdir()) == []


def test_an_archive_that_was_damaged_on_the_node_is_fetched_again(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    code = archive(scheduler, hello="one")
    scheduler.start(1, "cat", "hello", snapshots=[code])
    assert output(scheduler, 1) == "one"
    kept = state / "snapshots" / code
    kept.write_bytes(bytes(kept.stat().st_size))
    scheduler.start(2, "cat", "hello", snapshots=[code])
    assert output(scheduler, 2) == "one"
    assert scheduler.fetched == [(code, 0), (code, 0)]
    kept.rename(kept.with_name(f"{code}.part"))
    kept.with_name(f"{code}.part").write_bytes(b"zeros")
    scheduler.start(3, "cat", "hello", snapshots=[code])
    assert output(scheduler, 3) == "one", "what was fetched in part, too"


def test_what_would_write_elsewhere_is_refused(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../evil"))
    data = buffer.getvalue()
    digest = store(scheduler, Archive(data, sha256(data).hexdigest()))
    agent()
    scheduler.connected()
    scheduler.start(1, "true", snapshots=[digest])
    exited = scheduler.exited(1)
    assert "'../../evil' is not named by a path below the directory" in exited.launch_error
    assert exited.job_fault
    assert not list(state.rglob("evil"))


def test_a_link_of_one_does_not_lead_the_next_elsewhere(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "b"
        tar.addfile(link)
    data = buffer.getvalue()
    first = store(scheduler, Archive(data, sha256(data).hexdigest()))
    scheduler.start(1, "true", snapshots=[first, archive(scheduler, a__c="1")])
    assert "a is a file in one snapshot and a directory in another" in scheduler.exited(1).launch_error


def test_one_that_is_gone_is_a_failed_launch(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "true", snapshots=["0" * 64])
    assert "is not stored any more" in scheduler.exited(1).launch_error


def test_a_run_that_is_stopped_while_it_waits_does_not_start(agent: Start, scheduler: FakeScheduler) -> None:
    scheduler.fetching.clear()
    agent()
    scheduler.connected()
    scheduler.start(1, "true", snapshots=[archive(scheduler, a="1")])
    scheduler.wait(lambda: scheduler.fetched)
    scheduler.stop(1, 30)
    exited = scheduler.exited(1)
    assert exited.exit_signal == 15
    scheduler.fetching.set()
    scheduler.start(2, "true")
    scheduler.exited(2)
    assert len(scheduler.of(1)) == 1


def test_a_gang_is_ready_once_its_snapshots_are_there(agent: Start, scheduler: FakeScheduler) -> None:
    scheduler.fetching.clear()
    agent()
    scheduler.connected()
    code = archive(scheduler, hello="one")
    for rank in (0, 1):
        scheduler.start(1, "cat", "hello", gang=gang(rank, size=2), snapshots=[code])
    scheduler.wait(lambda: scheduler.fetched)
    assert not scheduler.of(1)
    scheduler.fetching.set()
    ports = [scheduler.ready(1, task=rank).port for rank in (0, 1)]
    for rank in (0, 1):
        scheduler.start(1, "cat", "hello", gang=gang(rank, size=2, go=("127.0.0.1", ports[0])), snapshots=[code])
        assert scheduler.exited(1, task=rank).exit_code == 0
        assert Path(scheduler.started(1, task=rank).log_path).read_text() == "one"


def launched(job: int, *digests: str) -> LaunchSpec:
    return LaunchSpec(RunKey(job, 1), ("true",), snapshots=digests)


async def test_a_connection_that_ends_while_a_thread_unpacks_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pack(Path(), (), [("hello", b"one")])
    snapshots, launch = Snapshots(Paths(tmp_path, tmp_path, "s1")), launched(1, made.digest)
    unpacking, go_on, times = threading.Event(), threading.Event(), []

    def slowly(packed: IO[bytes], into: Path) -> None:
        times.append(into)
        unpacking.set()
        assert go_on.wait(10)
        unpack(packed, into)

    async def fetch(_job: int, _digest: str, at: int) -> tuple[bytes, int]:
        return made.data[at:], made.size

    monkeypatch.setattr("node_agent.user_files.snapshots.unpack", slowly)
    first = asyncio.create_task(snapshots.provide(launch, fetch))
    assert await asyncio.to_thread(unpacking.wait, 10)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(snapshots.provide(launch, fetch))
    await asyncio.sleep(0)
    go_on.set()
    await second
    assert not snapshots.has_missing(launch)
    await snapshots.provide(launch, fetch)
    assert len(times) == 1, "no two threads write to one folder, and what is unpacked is left alone"
    assert not snapshots._locks, "nothing is kept of an archive that nobody fetches"


async def test_a_run_that_is_launched_anew_while_its_snapshot_is_fetched_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pack(Path(), (), [("hello", b"one")])
    paths, ready = Paths(tmp_path, tmp_path, "s1"), asyncio.Event()
    launch = launched(1, made.digest)
    transfers = Transfers(Snapshots(paths), Results(paths), lambda: "c1", lambda _key: ready.set(), lambda *_: None)

    class Failing:
        tries = 0

        async def get(self, _job: int, _digest: str, at: int) -> tuple[bytes, int]:
            self.tries += 1
            if self.tries == 1:
                transfers.waits(replace(launch))
                raise OSError("the connection is slow")
            return made.data[at:], made.size

        async def put(self, _key: RunKey, _size: int, _offset: int, _data: bytes) -> int:
            raise AssertionError

    monkeypatch.setattr("node_agent.user_files.transfers._AGAIN", 0.0)
    transfers.waits(launch)
    running = asyncio.create_task(transfers.run(Failing()))
    await asyncio.wait_for(ready.wait(), 10)
    running.cancel()


def test_archives_that_nobody_names_are_removed(tmp_path: Path) -> None:
    snapshots = Snapshots(Paths(tmp_path, tmp_path, "s1"))
    folder = tmp_path / "snapshots"
    assert snapshots._expire(0) == 0
    folder.mkdir()
    for name, age in (("old", KEEP + 60), ("new", 60.0)):
        (folder / name).touch()
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    assert snapshots._expire(1e9 - KEEP) == 1
    assert [path.name for path in folder.iterdir()] == ["new"]


# Results.


def test_a_result_is_sent(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "sh", "-c", 'head -c 3000000 /dev/zero >"$EBB_RESULT_FILE"; exit 3')
    assert scheduler.exited(1).exit_code == 3
    assert scheduler.result(1, 3_000_000) == bytes(3_000_000)
    until(lambda: not list((state / "results" / "c1").iterdir()))


def test_a_result_outlives_an_agent_that_is_killed_and_a_scheduler_that_is_away(
    agent: Start, scheduler: FakeScheduler, state: Path
) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, "sh", "-c", 'echo done >"$EBB_RESULT_FILE"; touch ready; until [ -e go ]; do sleep 0.02; done')
    folder = run_directory(state, 1)
    until((folder / "ready").exists)
    scheduler.started(1)
    first.kill()
    (folder / "go").touch()
    agent()
    scheduler.connected(2)
    assert scheduler.exited(1).exit_code == 0
    assert scheduler.result(1, 5) == b"done\n"


def test_a_result_that_is_refused_is_given_up(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    scheduler.most_result = 3
    running = agent()
    scheduler.connected()
    scheduler.start(1, "sh", "-c", 'echo done >"$EBB_RESULT_FILE"')
    scheduler.exited(1)
    until(lambda: "its result is not taken: it is too large" in running.log.read_text())
    until(lambda: not list((state / "results" / "c1").iterdir()))


# Environments.


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_environment_that_is_not_there_is_a_failed_launch(
    agent: Start, scheduler: FakeScheduler, tmp_path: Path, name: str
) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "true", environment={name: str(tmp_path)})
    exited = scheduler.exited(1)
    assert f"the environment of the job, {name}={tmp_path}, has no bin/python here" in exited.launch_error
    assert exited.job_fault
    scheduler.start(2, "true", inherited_environment={name: str(tmp_path)})
    assert scheduler.exited(2).exit_code == 0, "what it inherits need not be there"
