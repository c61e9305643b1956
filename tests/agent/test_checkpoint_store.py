"""The store of checkpoints: uploads that fail in the middle, and runs that find there what their own node cannot give them."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from node_agent.checkpoints.folders import CheckpointFolders
from node_agent.checkpoints.pieces import Changed, Damaged, Writer
from node_agent.checkpoints.store import CheckpointStore, StoredExpiry, StoreSource
from node_agent.checkpoints.uploads import CheckpointUploads
from node_agent.errors import StoreUnusable
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey
from node_agent.transport.files import FileCalls
from tests.agent.conftest import until
from tests.agent.fake_scheduler import LIMIT, FakeScheduler
from tests.agent.test_checkpoint_fetches import MIB, Two

SAVES = """
trap 'echo saved > "$EBB_CHECKPOINT_DIR/model"; echo "$EBB_RUN" > "$EBB_YIELD_FILE"; exit 0' TERM
touch "$EBB_RUN_DIR/up"
while :; do sleep 0.05; done
"""


class Bucket(MemoryFileSystem):
    """A store in memory, which can be full."""

    full_after = 1 << 60
    """Bytes of all objects; then there is no room."""

    def open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        if "w" in mode and sum(self.size(each) for each in self.find("/")) >= self.full_after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, mode, **more)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    found = Bucket(skip_instance_cache=True)
    yield found
    found.store.clear()
    found.pseudo_dirs[:] = [""]
    found.full_after = 1 << 60


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> CheckpointStore:
    return CheckpointStore("/store", bucket) if request.param == "memory" else CheckpointStore(f"file://{tmp_path}/store")


def saved(tmp_path: Path, **files: bytes) -> Path:
    folder = tmp_path / "job-1"
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


async def fetched(store: CheckpointStore, path: Path, name: str, least: int = 0, offset: int = 0) -> bytes:
    """A file from the store, as the agent fetches it."""
    source = StoreSource(store, lambda: "c1", least)
    (file,) = [one for one in (await source.describe(1)).files if one.path == name]
    writer = Writer(str(path))
    try:
        async for piece in source.pieces(1, file, offset):
            if piece.sha256:
                writer.check(piece.sha256, file.size)
            else:
                writer.write(piece)
    finally:
        writer.close()
    return path.read_bytes()


async def test_what_was_uploaded_comes_back_and_is_uploaded_once(store: CheckpointStore, tmp_path: Path) -> None:
    big = os.urandom(9 * MIB + 5)
    folder = saved(tmp_path, model=big, empty=b"")
    (folder / "latest").symlink_to("model")
    (folder / ".upload-1").touch()
    assert store.find("c1", 1) is None
    assert store.upload("c1", 1, 1, folder) == len(big)
    assert await fetched(store, tmp_path / "back", "model") == big
    found = store.find("c1", 1)
    assert found is not None
    assert (found.run, sorted(file.path for file in found.files)) == (1, ["empty", "latest", "model"])
    (folder / "more").write_bytes(b"small")
    assert store.upload("c1", 1, 2, folder) == 5
    (tmp_path / "part").write_bytes(big[:MIB])
    assert await fetched(store, tmp_path / "part", "model", offset=MIB) == big, "it goes on where it was"


async def test_what_is_not_needed_any_more_goes_and_an_older_run_replaces_nothing(
    store: CheckpointStore, tmp_path: Path
) -> None:
    folder = saved(tmp_path, model=b"old")
    store.upload("c1", 1, 1, folder)
    (before,) = set(store.find("c1", 1).files.values())  # type: ignore[union-attr]
    (folder / "model").write_bytes(b"newer")
    store.upload("c1", 1, 3, folder)
    with pytest.raises(FileNotFoundError):
        store.read("c1", 1, before, 0, 3)
    (folder / "model").write_bytes(b"of a run that was slow to leave")
    assert store.upload("c1", 1, 2, folder) == 0
    assert await fetched(store, tmp_path / "back", "model") == b"newer"
    assert not (await StoreSource(store, lambda: "c1", 4).describe(1)).exists
    assert (await StoreSource(store, lambda: "c1", 3).describe(1)).exists


async def test_a_store_that_is_full_has_what_it_had_and_goes_on_later(bucket: Bucket, tmp_path: Path) -> None:
    store = CheckpointStore("/store", bucket)
    folder = saved(tmp_path, first=b"1" * 100)
    store.upload("c1", 1, 1, folder)
    saved(tmp_path, second=b"2" * 2000, third=b"3" * 2000)
    bucket.full_after = 2000
    with pytest.raises(OSError, match="No space left"):
        store.upload("c1", 1, 2, folder)
    found = store.find("c1", 1)
    assert found is not None
    assert found.run == 1
    bucket.full_after = 1 << 60
    assert store.upload("c1", 1, 2, folder) == 2000, "one of the two was there already"
    assert await fetched(store, tmp_path / "back", "third") == b"3" * 2000


async def test_a_file_that_changes_meanwhile_is_not_stored(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, model=b"before")
    real = store._put

    def put(*arguments: Any) -> None:
        (folder / "model").write_bytes(b"later!")
        real(*arguments)

    monkeypatch.setattr(store, "_put", put)
    with pytest.raises(Changed):
        store.upload("c1", 1, 1, folder)
    assert store.find("c1", 1) is None


async def test_what_the_store_has_damaged_is_not_taken(tmp_path: Path) -> None:
    store = CheckpointStore(f"file://{tmp_path}/store")
    store.upload("c1", 1, 1, saved(tmp_path, model=b"content"))
    (file,) = (tmp_path / "store" / "c1" / "job-1" / "objects").iterdir()
    file.write_bytes(b"cOntent")
    with pytest.raises(Damaged):
        await fetched(store, tmp_path / "back", "model")


def test_a_store_that_cannot_be_is_refused_with_what_to_do() -> None:
    with pytest.raises(StoreUnusable, match=r"checkpoint_store nowhere://x cannot be used: .*nowhere"):
        CheckpointStore("nowhere://x")


async def test_uploads_that_fail_are_tried_again_and_go_on_after_a_restart(bucket: Bucket, tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "checkpoints", "s")
    folders, store = CheckpointFolders(paths, "n1"), CheckpointStore("/store", bucket)
    folder = folders.folder("c1", 1)
    folder.mkdir(parents=True)
    (folder / "model").write_bytes(b"content")
    bucket.full_after = 0
    uploads = CheckpointUploads(store, folders, again=(0.0,))
    uploads.upload_ended_run("c1", RunKey(1, 1))
    await uploads._tasks[1]
    assert store.find("c1", 1) is None
    assert (folder / ".upload-1").exists()
    bucket.full_after = 1 << 60
    again = CheckpointUploads(store, folders)
    again.recover("c1")
    await again._tasks[1]
    assert store.find("c1", 1) is not None
    assert not (folder / ".upload-1").exists()


def test_the_store_names_its_jobs_and_removes_one(store: CheckpointStore, tmp_path: Path) -> None:
    folder = saved(tmp_path, model=b"content", more=b"1")
    assert store.jobs("c1") == []
    store.remove("c1", 7)  # which it never had
    for job in (12, 3):
        store.upload("c1", job, 1, folder)
    store.upload("c2", 12, 1, folder)
    assert (store.jobs("c1"), store.jobs("c2")) == ([3, 12], [12])
    store.remove("c1", 12)
    store.remove("c1", 12)
    assert (store.jobs("c1"), store.jobs("c2")) == ([3], [12]), "of another cluster nothing is removed"
    assert store.find("c1", 12) is None
    assert store.find("c1", 3) is not None


def test_a_removal_that_was_cut_off_leaves_no_checkpoint_and_goes_on(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.upload("c1", 1, 1, saved(tmp_path, model=b"content", more=b"1"))
    real, gone = store._files.rm_file, []

    def one_alone(path: str) -> None:
        if gone:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        gone.append(path)
        real(path)

    monkeypatch.setattr(store._files, "rm_file", one_alone)
    with pytest.raises(OSError, match="Input/output error"):
        store.remove("c1", 1)
    assert gone[0].endswith("manifest.json")
    assert (store.find("c1", 1), store.jobs("c1")) == (None, [1])
    monkeypatch.undo()
    store.remove("c1", 1)
    assert store.jobs("c1") == []


def test_two_that_remove_at_the_same_time_meet_nothing_that_surprises_them(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is always first."""
    store.upload("c1", 1, 1, saved(tmp_path, model=b"content", more=b"1"))
    real = store._files.rm_file

    def late(path: str) -> None:
        real(path)
        real(path)

    monkeypatch.setattr(store._files, "rm_file", late)
    store.remove("c1", 1)
    monkeypatch.undo()
    assert store.jobs("c1") == []


@contextlib.asynccontextmanager
async def expiring(store: CheckpointStore, scheduler: FakeScheduler, days: float = 30) -> AsyncIterator[asyncio.Task[None]]:
    """An agent's expiry, over a real connection; it looks at once, and then all the time."""
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        expiry = StoredExpiry(store, lambda: "c1", days, first=0, pause=0.01)
        task = asyncio.ensure_future(expiry.run(FileCalls(channel)))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


async def test_checkpoints_of_jobs_that_ended_long_ago_are_removed_by_two_agents(
    store: CheckpointStore, tmp_path: Path, scheduler: FakeScheduler
) -> None:
    """A job that has not ended, that ended lately, or that the scheduler does not know stays."""
    folder = saved(tmp_path, model=b"content", more=b"1")
    for job in (1, 2, 3, 4):
        store.upload("c1", job, 1, folder)
    scheduler.ended_days |= {1: 31, 2: 29, 4: 30}
    async with expiring(store, scheduler) as first, expiring(store, scheduler) as second:
        await soon(lambda: store.jobs("c1") == [2, 3])
        looks = len(scheduler.asked)
        await soon(lambda: len(scheduler.asked) > looks + 4)
        assert not first.done()
        assert not second.done()
    assert store.jobs("c1") == [2, 3]
    assert scheduler.asked[-1] == ([2, 3], 30)


async def test_an_expiry_that_fails_is_tried_again(
    bucket: Bucket, tmp_path: Path, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore("/store", bucket)
    store.upload("c1", 1, 1, saved(tmp_path, model=b"content"))
    scheduler.ended_days[1] = 40

    def broken(_path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(bucket, "rm_file", broken)
        async with expiring(store, scheduler):
            await soon(lambda: "cannot be removed now" in caplog.text)
            assert store.jobs("c1") == [1]
            patch.undo()
            await soon(lambda: store.jobs("c1") == [])


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    pair = Two(tmp_path, "--checkpoint-store", f"file://{tmp_path}/store", "--keep-stored", "30")
    yield pair
    pair.close()


def test_a_run_whose_node_is_gone_finds_in_the_store_what_was_saved(two: Two) -> None:
    """Real agents. The first run leaves; then its node is switched off, and the scheduler names no source."""
    two.start("source")
    first = two.schedulers["source"]
    first.start(1, "sh", "-c", SAVES)
    until(lambda: list((two.folder / "source").glob("runs/*/1.1/up")))
    first.stop(1, 20)
    assert first.exited(1).yielded
    until(lambda: (two.folder / "store" / "c1" / "job-1" / "manifest.json").exists())
    until(lambda: not list(two.saved("source").glob(".upload-*")))
    two.agents["source"].kill()
    two.start("destination")
    there = two.schedulers["destination"]
    there.start(1, "sh", "-c", 'cat "$EBB_CHECKPOINT_DIR/model"', run=2)
    assert there.exited(1, 2).exit_code == 0
    assert Path(there.started(1, 2).log_path).read_text() == "saved\n"
    there.start(1, "sh", "-c", 'echo mine > "$EBB_CHECKPOINT_DIR/model"', run=3)
    there.exited(1, 3)
    there.start(1, "sh", "-c", 'cat "$EBB_CHECKPOINT_DIR/model"', run=4)
    there.exited(1, 4)
    assert Path(there.started(1, 4).log_path).read_text() == "mine\n", "what is newer here is not replaced"


def test_a_source_that_cannot_be_reached_is_replaced_by_the_store_only_with_the_last_run(two: Two) -> None:
    store = CheckpointStore(f"file://{two.folder}/store")
    store.upload("c1", 1, 1, saved(two.folder, model=b"of run 1"))
    address = two.start("source")
    two.agents["source"].kill()
    two.start("destination")
    there = two.schedulers["destination"]
    there.start(1, "sh", "-c", 'cat "$EBB_CHECKPOINT_DIR/model"', run=2, source=("source", address))
    assert there.exited(1, 2, limit=60).exit_code == 0
    assert Path(there.started(1, 2).log_path).read_text() == "of run 1"
