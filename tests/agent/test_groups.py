"""Control groups, on the kernel's own hierarchy where one can be made here."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb

from examples.cluster import start_module
from node_agent.checkpoints.criu import unusable
from node_agent.processes import process_groups as processes
from node_agent.processes.cgroups import Place, own_group, prepare_place
from node_agent.processes.launcher import cgroup_spawn
from node_agent.processes.launcher.client import Connected, Ended, NotSpawned, Spawned, Unable
from node_agent.processes.memory_watch import MemoryWatch
from node_agent.processes.process_groups import is_populated, kill_inside, processes_inside
from node_agent.processes.process_watch import GroupWatch
from node_agent.run_state.model import RunKey
from tests.agent.conftest import ROOT, AgentProcess, alive, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.launching import KEY, Client
from tests.agent.test_executor import ONE, TWO

Start = Callable[..., AgentProcess]

# Makes a session of its own, twice, forgets its environment, and is nobody's child: a daemon as it should be.
ESCAPES = "setsid sh -c 'setsid env -i sleep 1000 & echo $! >daemon'; until [ -s daemon ]; do sleep 0.02; done"


def own() -> str:
    return own_group(*(Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "mountinfo")))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A control group that is given to the test."""
    path = Path(own() or "/nowhere") / f"ebb-test-{uuid.uuid4().hex[:12]}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    monkeypatch.delenv("INVOCATION_ID", raising=False)  # whoever runs the tests is not who gives this group away
    yield path
    until(lambda: not is_populated(str(path)) or kill_inside(str(path)))
    until(lambda: _removed(path))


def _removed(path: Path) -> bool:
    try:
        for folder, _, _ in os.walk(path, topdown=False):
            Path(folder).rmdir()
    except OSError:
        return False
    return True


@contextmanager
def being_in(group: Path) -> Iterator[None]:
    """What is started here is born there."""
    before = Path(own())
    (group / "cgroup.procs").write_text("0")
    try:
        yield
    finally:
        (before / "cgroup.procs").write_text("0")


def group_of(pid: int) -> str:
    return own_group(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


@contextmanager
def sleeper(group: Path) -> Iterator[int]:
    """A process in a group, and one in a group inside it, both of sessions of their own; the pid of the first."""
    deeper = group / "deeper"
    deeper.mkdir()
    with being_in(deeper):
        second = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with being_in(group), subprocess.Popen(["sleep", "1000"], start_new_session=True) as first, second:
        (Path(own()).parent / "cgroup.procs").write_text("0")
        try:
            yield first.pid
        finally:
            first.kill()
            second.kill()


# The launcher, on the kernel's hierarchy.


def play(state: Path, scene: Callable[[Client], object]) -> None:
    async def scenes() -> None:
        state.mkdir()
        async with Client(state) as client:
            await scene(client)  # type: ignore[misc]

    asyncio.run(scenes())


def test_a_run_is_in_its_group_from_its_first_instruction_and_leaves_nothing(group: Path, state: Path) -> None:
    async def scene(client: Client) -> None:
        run = client.spawn("sh", "-c", f"cat /proc/self/cgroup; {ESCAPES}; cut -d' ' -f5,6 /proc/$$/stat; exit 3", group=group)
        spawned = await client.next(Spawned)
        assert (await client.next(Ended)).code == 3
        said, ids = (run / "output.log").read_text().splitlines()[-2:]
        assert said.endswith(f"/{group.name}")
        assert ids == f"{spawned.pid} {spawned.pid}"
        assert not alive(int((run / "daemon").read_text()))
        assert not is_populated(str(group))

    play(state, scene)


def test_launch_errors_are_the_same_in_a_group_and_a_group_that_is_not_there_is_the_nodes_fault(
    group: Path, state: Path
) -> None:
    async def scene(client: Client) -> None:
        client.spawn("no-such-program", group=group)
        assert await client.next(NotSpawned) == NotSpawned(KEY, "command no-such-program: No such file or directory")
        client.spawn("/", key=RunKey(2, 1), group=group)
        assert await client.next(NotSpawned) == NotSpawned(RunKey(2, 1), "command /: Permission denied")
        client.spawn("true", key=RunKey(3, 1), group=group, **{"A=B": "no name of a variable"})  # type: ignore[arg-type]
        assert "environment variable" in (await client.next(NotSpawned)).error
        missing = group / "missing"
        client.spawn("true", key=RunKey(4, 1), group=missing)
        error = f"No such file or directory (control group {missing})"
        assert await client.next(Unable) == Unable(RunKey(4, 1), error)
        missing.mkdir()
        client.spawn("true", key=RunKey(4, 1), group=missing)
        await client.next(Spawned)
        assert (await client.next(Ended)).code == 0

    play(state, scene)


@pytest.mark.parametrize("born", ["library", "clone3", "not permitted", "no such call"])
def test_each_way_to_be_born_in_a_group(group: Path, born: str) -> None:
    if born == "library" and cgroup_spawn._library() is None:
        pytest.skip("this C library cannot: it takes glibc 2.39")
    number = {"library": 0, "clone3": 0, "not permitted": 1, "no such call": 38}[born]
    script = f"""
import os, signal, sys
sys.path.append({str(ROOT)!r})
from node_agent.processes.launcher import cgroup_spawn
from node_agent.processes.launcher.spawn import spawn_found
if {born != "library"}:
    cgroup_spawn._library = lambda: None
else:
    cgroup_spawn.spawn_by_fork = None
if {number}:
    cgroup_spawn._system_call = lambda: lambda *_: (-1, {number})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = os.open("/dev/stdout", os.O_WRONLY)
say = "cat /proc/self/cgroup; grep SigIgn /proc/self/status; cut -d' ' -f5,6 /proc/$$/stat; echo $$; echo $A; echo $0"
streams = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
pid, _ = spawn_found(["sh", "-c", say, "caf\\udce9"], {{"PATH": os.defpath, "A": "b=c"}}, streams, {str(group)!r})
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    data = subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True, capture_output=True).stdout
    *_, place, ignored, ids, pid, variable, zeroth = data.decode(errors="surrogateescape").splitlines()
    assert place.endswith(f"/{group.name}")
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0
    assert (ids, variable, zeroth) == (f"{pid} {pid}", "b=c", "caf\udce9")


def test_a_watch_kills_what_has_left_the_process_group_of_an_orphan(group: Path, state: Path) -> None:
    async def scene(client: Client) -> None:
        run = client.spawn("sh", "-c", f"{ESCAPES}; touch escaped; until [ -e go ]; do sleep 0.02; done", group=group)
        spawned = await client.next(Spawned)
        os.kill(client.launcher.pid, signal.SIGKILL)
        await client.next(Connected)
        until((run / "escaped").exists)
        daemon = int((run / "daemon").read_text())
        ended = asyncio.Event()
        GroupWatch(spawned.pid, spawned.start_ticks, ended.set, str(group)).begin()
        assert alive(daemon)
        (run / "go").touch()
        await asyncio.wait_for(ended.wait(), 20)
        assert not alive(daemon)

    play(state, scene)


@pytest.mark.parametrize("kernel", ["5.14", "5.2", "5.1"])
def test_kernels_kill_a_whole_group(group: Path, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = {"5.14": (), "5.2": ("cgroup.kill",), "5.1": ("cgroup.kill", "cgroup.freeze")}[kernel]
    written = []
    real = processes.write

    def write(path: str, text: str) -> None:
        if path.endswith(lacks):
            raise FileNotFoundError(path)
        written.append(f"{Path(path).name} {text}")
        real(path, text)

    monkeypatch.setattr(processes, "write", write)
    with sleeper(group):
        assert len(processes_inside(str(group))) == 2
        kill_inside(str(group))
        until(lambda: not is_populated(str(group)))
        assert processes_inside(str(group)) == []
    how = {"5.14": ["cgroup.kill 1"], "5.2": ["cgroup.freeze 1", "cgroup.freeze 0"], "5.1": []}
    assert written == how[kernel]


def test_the_memory_of_a_group_is_that_of_all_its_processes(group: Path) -> None:
    holds = "data = bytearray(b'x') * (100 << 20); print('ready', flush=True); input()"
    with being_in(group):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        watch = MemoryWatch(dict, lambda *_: None)
        assert list(watch.find_exceeding({ONE: (str(group), 90 << 20), TWO: (str(group), 300 << 20)})) == [ONE]
        kill_inside(str(group))
    assert watch.find_exceeding({ONE: (str(group), 0)}) == {}


def test_groups_are_made_found_and_removed(group: Path) -> None:
    groups, missing = prepare_place(Place(str(group)), limits=True)
    assert missing == ""
    assert list(groups.find_runs()) == []
    for _ in range(2):
        path = groups.make("s1/17.1.2", 0)
    assert path == f"{group}/runs/s1.17.1.2" == groups.path("s1/17.1.2")
    assert list(groups.find_runs()) == ["s1/17.1.2"]
    with sleeper(Path(path)):
        assert groups.is_alive("s1/17.1.2")
        assert not groups.is_limited("s1/17.1.2")  # without a memory controller
        assert not groups.remove("s1/17.1.2")
    until(lambda: groups.remove("s1/17.1.2"))
    assert list(groups.find_runs()) == []
    assert groups.remove("s1/17.1.2")


# The agent, on the kernel's hierarchy.


@pytest.fixture
def inside_group(agent: Start, group: Path) -> Start:
    def start(*flags: str) -> AgentProcess:
        with being_in(group):
            return agent("--control-groups", "auto", *flags, start=start_module)

    return start


def leaves(group: Path, job: int) -> bool:
    """Whether the group of the job's run is not there any more."""
    return not list(group.glob(f"runs/*.{job}.1"))


def test_nothing_escapes_a_run_of_an_agent(inside_group: Start, group: Path, scheduler: FakeScheduler, state: Path) -> None:
    process = inside_group().process
    scheduler.connected()
    assert group_of(process.pid) == f"{group}/agent"
    scheduler.start(1, "/bin/sh", "-c", f"{ESCAPES}; exit 4")
    assert scheduler.exited(1).exit_code == 4
    assert not alive(int((run_directory(state, 1) / "daemon").read_text()))
    until(lambda: leaves(group, 1))
    # A stop: the signal goes to the process group, as ever, and the kill to all.
    scheduler.start(2, "/bin/sh", "-c", f"trap '' TERM; {ESCAPES}; touch ready; while :; do sleep 0.05; done")
    run = run_directory(state, 2)
    until((run / "ready").exists)
    daemon = int((run / "daemon").read_text())
    assert group_of(daemon) == group_of(scheduler.started(2).pid)
    scheduler.stop(2, 0.1)
    assert scheduler.exited(2).exit_signal == signal.SIGKILL
    assert not alive(daemon)
    until(lambda: leaves(group, 2))


def test_what_criu_restores_is_in_the_group_of_its_run(
    inside_group: Start, group: Path, scheduler: FakeScheduler, state: Path
) -> None:
    if why := asyncio.run(unusable()):
        pytest.skip(why)
    inside_group("--criu", "on")
    scheduler.connected()
    command = ("/bin/sh", "-c", "sleep 1000 & echo $! >child; wait")
    scheduler.start(1, *command)
    first = scheduler.started(1).pid
    child = int(until(lambda: (file := run_directory(state, 1) / "child").exists() and file.read_text()))  # type: ignore[arg-type]
    scheduler.stop(1, 60, reason=pb.STOP_REASON_SUSPENDED)
    assert scheduler.exited(1).yielded
    scheduler.start(1, *command, run=2)
    started = scheduler.started(1, 2)
    assert started.restored.startswith("CRIU restored run 1")
    assert started.pid == first
    assert group_of(first) == group_of(child)
    assert group_of(first).endswith(".1.2")
    scheduler.stop(1, 0, 2, reason=pb.STOP_REASON_CANCELLED)
    scheduler.exited(1, 2)
    assert not alive(child)


def test_runs_are_taken_over_in_their_groups(inside_group: Start, group: Path, scheduler: FakeScheduler, state: Path) -> None:
    first = inside_group()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", f"{ESCAPES}; touch ready; until [ -e go ]; do sleep 0.02; done; exit 5")
    run = run_directory(state, 1)
    until((run / "ready").exists)
    daemon = int((run / "daemon").read_text())
    first.kill()
    launcher = next(pid for pid in processes_inside(f"{group}/agent") if pid != first.process.pid)
    os.kill(launcher, signal.SIGKILL)  # so that nobody but the next agent can tell when it is over
    second = inside_group()
    scheduler.wait(lambda: len(scheduler.hellos) == 2)
    assert group_of(second.process.pid) == f"{group}/agent"
    assert [alive(pid) for pid in (scheduler.started(1).pid, daemon)] == [True, True]
    (run / "go").touch()
    assert scheduler.exited(1).unknown
    assert not alive(daemon)
    until(lambda: leaves(group, 1))


@pytest.mark.parametrize("escapes", [ESCAPES, ESCAPES.replace("setsid env", "env")], ids=["leads a group", "leads none"])
def test_what_is_left_in_groups_of_runs_that_nobody_knows(
    escapes: str, inside_group: Start, group: Path, scheduler: FakeScheduler, state: Path
) -> None:
    first = inside_group()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", f"{escapes}; touch ready; sleep 1000")
    run = run_directory(state, 1)
    until((run / "ready").exists)
    daemon = int((run / "daemon").read_text())
    leader = int(scheduler.started(1).pid)  # the run may get there before its agent has told that it started
    first.kill()
    for pid in processes_inside(f"{group}/agent"):
        os.kill(pid, signal.SIGKILL)
    os.killpg(leader, signal.SIGKILL)
    until(lambda: not processes.start_ticks(leader))  # only the daemon is left, which nothing else tells of
    (state / "spool.db").unlink()
    (group / "runs" / f"{run.parent.name}.9.1").mkdir()
    foreign = group / "runs" / "other.1.1"  # of another agent that has its runs in the same place
    foreign.mkdir()
    with sleeper(foreign) as stranger:
        inside_group()
        scheduler.wait(lambda: len(scheduler.hellos) == 2)
        assert not alive(daemon)
        assert alive(stranger)
        until(lambda: [path.name for path in (group / "runs").glob("*.*.*") if not path.is_file()] == [foreign.name])
