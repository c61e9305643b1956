"""Checkpoints that go from agent to agent, as real processes, also if an agent, the link or the disk fails in the middle."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from ebb.agent.v1 import transfer_pb2, transfer_pb2_grpc

from node_agent.checkpoints.folders import CheckpointFolders, Described
from node_agent.processes.run_paths import Paths
from node_agent.transport.checkpoint_client import CheckpointSource
from node_agent.transport.checkpoint_server import CheckpointServer
from node_agent.transport.security import Security
from tests import preloaded
from tests.agent.conftest import AgentProcess, _kill, of_state, until
from tests.agent.fake_scheduler import FakeScheduler
from tests.certificates import Authority

KEY = b"k" * 32
MIB = 1 << 20
Start = Callable[..., AgentProcess]


class Relay:
    """Between two agents: lets so many bytes of what the source sends pass, and can cut the link."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.passed = 0
        """Bytes that the source has sent."""
        self.most = 1 << 60
        self._changed = threading.Condition()
        self._open: list[socket.socket] = []
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            ours, _ = self._listener.accept()
            try:
                if self._closed:
                    raise ConnectionError
                theirs = socket.create_connection(self._target)
            except OSError:
                ours.close()
                if self._closed:
                    return
                continue
            self._open += [ours, theirs]
            for ends in ((ours, theirs, False), (theirs, ours, True)):
                self._threads.append(threading.Thread(target=self._pump, args=ends, daemon=True))
                self._threads[-1].start()

    def _pump(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if counted:
                    with self._changed:
                        self._changed.wait_for(lambda: self.passed < self.most or self._closed)
                        self.passed += len(data)
                        self._changed.notify_all()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def halt_at(self, count: int) -> None:
        with self._changed:
            self.most = count

    def halted(self) -> None:
        """Waits until the limit is reached."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.passed >= self.most, 30)

    def release(self) -> None:
        with self._changed:
            self.most = 1 << 60
            self._changed.notify_all()

    def cut(self) -> None:
        """Ends every connection; new ones are taken."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        socket.create_connection(self._listener.getsockname()).close()
        self.release()
        self.cut()
        for thread in self._threads:
            thread.join(20)
        for end in (*self._open, self._listener):
            end.close()


class Two:
    """A source and a destination, each with a scheduler of its own that says the same."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder, self._flags = folder, flags or ("--checkpoint-copies", "network")
        self.schedulers = {node: FakeScheduler() for node in ("source", "destination")}
        for scheduler in self.schedulers.values():
            scheduler.transfer_key = KEY
        self.agents: dict[str, AgentProcess] = {}
        self.relays: list[Relay] = []

    def start(self, node: str, *flags: str) -> str:
        """Starts the agent of a node, perhaps again; where it gives checkpoints away."""
        scheduler = self.schedulers[node]
        times = len(scheduler.hellos)
        where = self.folder / node, scheduler.address
        self.agents[node] = AgentProcess(*where, *self._flags, *flags, node=node, start=preloaded.start)
        return scheduler.connected(times + 1).checkpoints_at

    def relay(self, target: str) -> Relay:
        self.relays.append(Relay(target))
        return self.relays[-1]

    def saved(self, node: str, job: int = 1) -> Path:
        """The checkpoint folder of a job on a node."""
        return self.folder / node / "checkpoints" / "c1" / f"job-{job}"

    def save(self, **files: bytes) -> None:
        for name, data in files.items():
            path = self.saved("source") / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def resume(self, address: str, *command: str, run: int = 2, job: int = 1) -> FakeScheduler:
        """Has the job run at the destination, after it ran at the source."""
        scheduler = self.schedulers["destination"]
        scheduler.start(job, *(command or ("true",)), run=run, source=("source", address))
        return scheduler

    def close(self) -> None:
        for relay in self.relays:
            relay.close()
        for agent in self.agents.values():
            if agent.process.poll() is None:
                agent.kill()
        for node in self.agents:
            until(lambda node=node: not [_kill(pid) for pid in of_state(self.folder / node)])  # type: ignore[misc]
        for scheduler in self.schedulers.values():
            scheduler.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    pair = Two(tmp_path)
    yield pair
    pair.close()


def test_a_run_finds_what_the_run_before_saved_on_another_node(two: Two) -> None:
    address = two.start("source")
    two.start("destination")
    noise = os.urandom(5 * MIB + 17)
    two.save(model=noise, deep__er__log=b"again and again " * 100_000, empty=b"", torn=b"x")
    (two.saved("source") / "torn").rename(two.saved("source") / ".model.1.tmp")
    (two.saved("source") / "latest").symlink_to("deep/er")
    (two.saved("source") / "model").chmod(0o640)
    (two.saved("destination")).mkdir(parents=True)
    (two.saved("destination") / "older").write_text("of a run here, long ago")
    script = 'cd "$EBB_CHECKPOINT_DIR"; ls -A; cat latest/log | sha256sum; stat -c %a model'
    scheduler = two.resume(address, "sh", "-c", script)
    assert scheduler.exited(1, 2).exit_code == 0
    said = Path(scheduler.started(1, 2).log_path).read_text().split()
    assert {".fetched-2", "deep", "empty", "latest", "model", "640"} <= set(said)
    assert not {"older", ".model.1.tmp"} & set(said), "it is what the source has, and nothing unfinished"
    assert (two.saved("destination") / "model").read_bytes() == noise
    assert (two.saved("source") / "model").read_bytes() == noise, "the source keeps its copy"
    here, there = (two.saved(node) / "model" for node in ("destination", "source"))
    assert here.stat().st_mtime_ns == there.stat().st_mtime_ns


def test_an_agent_on_the_same_machine_copies_the_files(tmp_path: Path) -> None:
    pair = Two(tmp_path, "--checkpoint-copies", "auto")
    try:
        relay = pair.relay(pair.start("source"))
        pair.start("destination")
        noise = os.urandom(20 * MIB + 3)
        pair.save(model=noise, deep__er__log=b"text")
        (pair.saved("source") / "model").chmod(0o640)
        assert pair.resume(relay.address).exited(1, 2).exit_code == 0
        here, there = (pair.saved(node) / "model" for node in ("destination", "source"))
        assert here.read_bytes() == noise
        assert (pair.saved("destination") / "deep" / "er" / "log").read_bytes() == b"text"
        assert relay.passed < 100_000
        assert here.stat().st_ino != there.stat().st_ino, "what a run changes here does not change there"
        assert (here.stat().st_mode, here.stat().st_mtime_ns) == (there.stat().st_mode, there.stat().st_mtime_ns)
        (there.parent / "model").unlink()
        (there.parent / "model").symlink_to("/etc/hostname")  # a link that leads out is not followed
        pair.resume(relay.address, run=4).exited(1, 4)
        assert not here.exists()
    finally:
        pair.close()


def test_files_of_another_machine_or_storage_are_not_copied(tmp_path: Path) -> None:
    theirs, ours = (CheckpointFolders(Paths(tmp_path / node, tmp_path / node / "saved", "s"), node) for node in ("a", "b"))
    theirs.folder("c1", 1).mkdir(parents=True)
    said = theirs.describe("c1", 1)
    assert ours.find_nearby(said) == theirs.folder("c1", 1)
    assert ours.find_nearby(said._replace(machine="another")) is None
    assert ours.find_nearby(said._replace(store="another")) is None
    assert ours.find_nearby(said._replace(folder=str(tmp_path))) is None
    assert ours.find_nearby(said._replace(folder="saved/c1/job-1")) is None
    assert ours.find_nearby(said._replace(folder="/")) is None


def test_only_what_has_changed_is_fetched_again(two: Two) -> None:
    relay = two.relay(two.start("source"))
    two.start("destination")
    two.save(first=os.urandom(4 * MIB))
    two.resume(relay.address).exited(1, 2)
    assert 4 * MIB < relay.passed < 5 * MIB
    two.save(second=os.urandom(MIB))
    before = relay.passed
    two.resume(relay.address, run=4).exited(1, 4)
    assert MIB < relay.passed - before < 2 * MIB
    assert (two.saved("destination") / "second").stat().st_size == MIB
    assert (two.saved("destination") / "first").stat().st_size == 4 * MIB


def test_what_shrinks_is_compressed_on_its_way(two: Two) -> None:
    relay = two.relay(two.start("source"))
    two.start("destination")
    text = b"a line of a log that is much like the line before\n" * (8 * MIB // 50)
    two.save(log=text)
    two.resume(relay.address).exited(1, 2)
    assert (two.saved("destination") / "log").read_bytes() == text
    assert relay.passed < MIB


def test_nothing_moves_between_nodes_that_share_their_storage(two: Two, tmp_path: Path) -> None:
    shared = "--checkpoints", str(tmp_path / "shared")
    relay = two.relay(two.start("source", *shared))
    two.start("destination", *shared)
    folder = tmp_path / "shared" / "c1" / "job-1"
    folder.mkdir(parents=True)
    (folder / "model").write_bytes(os.urandom(4 * MIB))
    inode = (folder / "model").stat().st_ino
    two.resume(relay.address).exited(1, 2)
    assert relay.passed < 100_000
    assert (folder / "model").stat().st_ino == inode


def test_a_link_that_is_cut_goes_on_where_it_was(two: Two) -> None:
    relay = two.relay(two.start("source"))
    two.start("destination")
    noise = os.urandom(16 * MIB)
    two.save(model=noise)
    relay.halt_at(9 * MIB)
    scheduler = two.resume(relay.address)
    relay.halted()
    relay.cut()
    relay.release()
    assert scheduler.exited(1, 2).exit_code == 0
    assert (two.saved("destination") / "model").read_bytes() == noise
    assert relay.passed < 24 * MIB, "what had come was not fetched again"


def test_a_destination_that_is_killed_goes_on_where_it_was(two: Two) -> None:
    relay = two.relay(two.start("source"))
    two.start("destination")
    noise = os.urandom(16 * MIB)
    two.save(model=noise)
    relay.halt_at(9 * MIB)
    scheduler = two.resume(relay.address)
    relay.halted()
    part = two.folder / "destination" / "checkpoints" / "c1" / ".incoming-destination-job-1" / ".model.part"
    until(lambda: part.exists() and part.stat().st_size >= 4 * MIB)
    two.agents["destination"].kill()
    assert not two.saved("destination").exists(), "nothing is visible before it is complete"
    relay.release()
    two.start("destination")
    assert scheduler.exited(1, 2).exit_code == 0
    assert (two.saved("destination") / "model").read_bytes() == noise
    assert relay.passed < 26 * MIB


def test_a_source_that_is_killed_is_waited_for(two: Two) -> None:
    address = two.start("source")
    relay = two.relay(address)
    two.start("destination")
    noise = os.urandom(16 * MIB)
    two.save(model=noise)
    relay.halt_at(9 * MIB)
    scheduler = two.resume(relay.address)
    relay.halted()
    two.agents["source"].kill()
    relay.release()
    assert two.start("source") == address, "it is reached where it was"
    assert scheduler.exited(1, 2).exit_code == 0
    assert (two.saved("destination") / "model").read_bytes() == noise


def test_a_full_disk_gives_the_run_up_here(two: Two) -> None:
    """The file that is being fetched is one on a device without room."""
    address = two.start("source")
    two.start("destination")
    two.save(model=os.urandom(4 * MIB))
    incoming = two.folder / "destination" / "checkpoints" / "c1" / ".incoming-destination-job-1"
    incoming.mkdir(parents=True)
    (incoming / ".model.part").symlink_to("/dev/full")
    said = two.resume(address).exited(1, 2)
    assert "its checkpoint cannot be fetched from node source: No space left on device on this node" in said.not_fetched
    assert not said.launch_error
    assert not two.saved("destination").exists()


def test_a_run_that_is_stopped_waits_no_longer(two: Two) -> None:
    relay = two.relay(two.start("source"))
    two.start("destination")
    two.save(model=os.urandom(16 * MIB))
    relay.halt_at(4 * MIB)
    scheduler = two.resume(relay.address)
    relay.halted()
    scheduler.stop(1, 5, run=2)
    scheduler.exited(1, 2)
    assert not scheduler.of(1, 2) or all(r.WhichOneof("event") != "started" for r in scheduler.of(1, 2))


def is_welcome(stub: transfer_pb2_grpc.CheckpointTransferStub) -> bool:
    """Whether the agent has been welcomed: before that, it does not know the transfer key, and is not available."""
    with pytest.raises(grpc.RpcError) as refused:
        stub.Describe(transfer_pb2.DescribeRequest(cluster_id="c1", job_id=1))
    assert refused.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED)
    return bool(refused.value.code() is grpc.StatusCode.UNAUTHENTICATED)


def test_who_does_not_know_the_key_gets_nothing(two: Two) -> None:
    address = two.start("source")
    two.save(model=b"secret")
    with grpc.insecure_channel(address) as channel:
        stub = transfer_pb2_grpc.CheckpointTransferStub(channel)
        until(lambda: is_welcome(stub))
        asked = transfer_pb2.DescribeRequest(cluster_id="c1", job_id=1)
        wanted = transfer_pb2.FetchRequest(cluster_id="c1", job_id=1, file=transfer_pb2.CheckpointFile(path="model", size=6))
        for metadata in ((), (("authorization", "Bearer " + b"j".hex() * 32),)):
            for call in (lambda m: stub.Describe(asked, metadata=m), lambda m: list(stub.Fetch(wanted, metadata=m))):
                with pytest.raises(grpc.RpcError) as refused:
                    call(metadata)
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        mine = (("authorization", f"Bearer {KEY.hex()}"),)
        assert [file.path for file in stub.Describe(asked, metadata=mine).files] == ["model"]
        wanted.file.path = "../job-1/model"
        with pytest.raises(grpc.RpcError, match="not a name inside"):
            list(stub.Fetch(wanted, metadata=mine))


def test_a_file_that_changes_is_not_given_away_as_it_was(two: Two) -> None:
    address = two.start("source")
    two.save(model=b"before")
    with grpc.insecure_channel(address) as channel:
        stub = transfer_pb2_grpc.CheckpointTransferStub(channel)
        until(lambda: is_welcome(stub))
        mine = (("authorization", f"Bearer {KEY.hex()}"),)
        (file,) = stub.Describe(transfer_pb2.DescribeRequest(cluster_id="c1", job_id=1), metadata=mine).files
        two.save(model=b"afterwards")
        with pytest.raises(grpc.RpcError, match="has changed"):
            list(stub.Fetch(transfer_pb2.FetchRequest(cluster_id="c1", job_id=1, file=file), metadata=mine))


async def test_over_tls_both_agents_show_their_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pairs = {name: authority.issue(name, f"DNS:{name}") for name in ("source", "destination")}
    safe = {name: Security(None, authority.certificate, *pair) for name, pair in pairs.items()}
    assert safe["source"].can_serve
    assert not Security(None, authority.certificate).can_serve
    folders = CheckpointFolders(Paths(tmp_path / "state", tmp_path / "checkpoints", "s"), "source")
    server = CheckpointServer(folders, lambda: KEY, lambda _: ("torch",))
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0, safe['source'], tmp_path)}"

    async def described(node: str, security: Security) -> Described:
        source = CheckpointSource(node, address, lambda: "c1", lambda: KEY, security)
        try:
            return await source.describe(1)
        finally:
            await source.close()

    try:
        assert (await described("source", safe["destination"])).modules == ("torch",)
        with pytest.raises(ConnectionError):  # it is no other node than it says
            await described("another", safe["destination"])
        with pytest.raises(ConnectionError):  # a machine without a certificate of the site
            await described("source", Security(None, authority.certificate))
    finally:
        await server.close()
