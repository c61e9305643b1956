"""Control groups on plain files in place of the kernel's: where they can be made, what is missing, what is written."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.config import BadSettings, load
from node_agent.errors import ControlGroupsMissing
from node_agent.processes import cgroups as module
from node_agent.processes.cgroups import Groups, Place, find_place, own_group, prepare_place, set_up_groups
from node_agent.processes.launcher.client import Ended, Spawned
from node_agent.run_state.events import Exited
from node_agent.run_state.model import RunKey
from tests.agent.test_executor import ONE, TWO, Stage, running, stopped

# ---- where groups can be made, and what is missing ----------------------------------------------------------------------

MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 {top} {point} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
"""


@pytest.mark.parametrize(
    ("top", "point", "membership", "path"),
    [
        ("/", "/sys/fs/cgroup", "0::/system.slice/a.service\n", "/sys/fs/cgroup/system.slice/a.service"),
        ("/", "/sys/fs/cgroup/unified", "4:memory:/x\n0::/\n", "/sys/fs/cgroup/unified"),
        ("/docker/c1", "/sys/fs/cgroup", "0::/docker/c1\n", "/sys/fs/cgroup"),
        ("/docker/c1", "/sys/fs/cgroup", "0::/docker/c1/agent\n", "/sys/fs/cgroup/agent"),
        ("/docker/c1", "/sys/fs/cgroup", "0::/docker/c17\n", ""),
        ("/", "/sys/fs/cgroup", "0::/../../a\n", ""),
        ("/", r"/a\040b", "0::/c:d\n", "/a b/c:d"),
        ("/", "/sys/fs/cgroup", "4:memory:/x\n", ""),
    ],
)
def test_the_own_group_is_found(top: str, point: str, membership: str, path: str) -> None:
    assert own_group(membership, MOUNTS.format(top=top, point=point)) == path
    assert own_group(membership, "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw") == ""


def plain(path: Path, controllers: str = "cpu memory pids") -> Path:
    """A directory with the files of a group that the kernel would put there."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in (("procs", ""), ("subtree_control", ""), ("type", "domain\n"), ("events", "populated 0\n")):
        (path / f"cgroup.{name}").write_text(text)
    (path / "cgroup.controllers").write_text(f"{controllers}\n")
    for name in ("max", "swap.max", "oom.group", "events"):
        (path / f"memory.{name}").write_text("low 0\noom 0\noom_kill 0\n" if name == "events" else "")
    return path


def test_what_an_agent_finds(tmp_path: Path) -> None:
    no_systemd = str(tmp_path / "none")
    unit = plain(tmp_path / "unit")
    leaf = plain(unit / "agent")
    assert find_place(str(leaf), {"INVOCATION_ID": "1"}, no_systemd) == Place(str(unit), memory=True)
    assert find_place(str(unit), {}, no_systemd) == Place(str(unit), inner=True, memory=True)
    told = find_place(str(unit), {"INVOCATION_ID": "1"}, no_systemd)
    assert (told.root, told.inner, told.memory) == (str(unit), True, False)
    assert "DelegateSubgroup=agent" in told.missing
    plain(unit, "cpu hugetlb")
    told = find_place(str(leaf), {}, no_systemd)
    assert (told.root, told.inner, told.memory) == (str(unit), False, False)
    assert "no memory controller (it has: cpu, hugetlb)" in told.missing
    (unit / "cgroup.type").unlink()  # as the outermost group has it, which nobody gives away
    told = find_place(str(unit), {}, no_systemd)
    assert told.root == ""
    assert "the whole machine's group" in told.missing
    (unit / "cgroup.type").write_text("domain")
    assert "no cgroup v2 is mounted" in find_place("", {}).missing
    (unit / "cgroup.subtree_control").unlink()
    told = find_place(str(unit), {}, no_systemd)
    assert told.root == ""
    assert "is not the agent's own" in told.missing


def test_of_systemds_groups_only_what_was_given_away_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = plain(tmp_path / "unit")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_place(str(unit), {}, systemd=str(tmp_path)).root == ""
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1" if (path, name) == (str(unit), "trusted.delegate") else b"0")
    assert find_place(str(unit), {}, systemd=str(tmp_path)).root == str(unit)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"")
    assert find_place(str(unit), {}, systemd=str(tmp_path)).root == str(unit)  # what it may write was given to it
    session = plain(tmp_path / "user@1000.service" / "app.scope")
    assert find_place(str(session), {}, systemd=str(tmp_path)).root == ""  # to the user's own systemd


def test_controllers_are_given_to_runs_once_the_agent_is_out_of_the_way(tmp_path: Path) -> None:
    unit = plain(tmp_path / "unit")
    (unit / "cgroup.procs").write_text("11\n12\n")
    plain(unit / "agent")
    plain(unit / "runs")
    groups, missing = prepare_place(Place(str(unit), inner=True, memory=True), limits=True)
    assert missing == ""
    assert (unit / "agent/cgroup.procs").read_text() in ("0", "12")  # the last one; plain files do not add up
    assert [(unit / name / "cgroup.subtree_control").read_text() for name in (".", "runs")] == ["+memory"] * 2
    assert groups.path("s/1.1") == f"{unit}/runs/s.1.1"


def test_where_the_kernel_refuses_groups_are_used_without_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = plain(tmp_path / "unit")
    (unit / "cgroup.procs").write_text("11\n12\n")

    def write(path: str, text: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(module, "write", write)
    groups, missing = prepare_place(Place(str(unit), memory=True), limits=True)
    assert "Device or resource busy; processes 11, 12 are in it" in missing
    assert groups.path("s/1.1") == f"{unit}/runs/s.1.1"
    assert not groups.is_limited("s/1.1")
    groups, missing = prepare_place(Place(str(unit), inner=True), limits=True)
    assert "Device or resource busy" in missing
    assert groups.path("s/1.1") == ""


def test_policies(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "find_place", lambda *_: Place(missing="it is not there; make it so"))
    assert set_up_groups("off", limits=True).path("s/1.1") == ""
    assert caplog.messages == []
    assert set_up_groups("auto", limits=True).path("s/1.1") == ""
    assert caplog.messages == ["control groups: it is not there; make it so"]
    with pytest.raises(ControlGroupsMissing, match=r"require\): it is not there; make it so\. Mend that"):
        set_up_groups("require", limits=True)


# ---- memory: what is written for the kernel, and what is made of what it tells -------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for groups of runs; a group that is made there gets its files."""
    runs = tmp_path / "runs-of-all"
    runs.mkdir()
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        if Path(path).parent == runs:
            plain(Path(path))

    monkeypatch.setattr(os, "mkdir", mkdir)
    return runs


def test_the_kernel_is_told_what_a_run_may_use(files: Path) -> None:
    groups = Groups(str(files), memory=True)
    path = Path(groups.make("s/1.1", 100))
    written = {name: (path / f"memory.{name}").read_text().strip() for name in ("max", "swap.max", "oom.group")}
    assert written == {"max": str(100 << 20), "swap.max": "0", "oom.group": "1"}
    (path / "memory.swap.max").unlink()  # a kernel that does not account for swap
    groups.make("s/1.1", 0)
    assert (path / "memory.max").read_text().startswith("max")
    Groups(str(files), memory=True, limits=False).make("s/2.1", 100)
    assert (files / "s.2.1/memory.max").read_text().startswith("max")
    assert groups.oom_kills("s/1.1") == 0
    (path / "memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 1\n")
    assert groups.oom_kills("s/1.1") == 2
    assert groups.oom_kills("s/3.1") is None
    assert Groups(str(files)).oom_kills("s/1.1") is None


@pytest.fixture
def stage(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(tmp_path, monkeypatch, Groups(str(files), memory=True))
    yield stage
    stage.executor.close()
    stage.spool.close()


def starts(stage: Stage, files: Path, key: RunKey, pid: int) -> Path:
    stage.executor.obey([running(key, memory_mib=100)])
    folder = files / f"{stage.spool.short_id}.{key.name}"
    (folder / "cgroup.events").write_text("populated 1\n")
    stage.executor.hear([Spawned(key, pid, pid * 10, child=True)])
    return folder


async def test_a_run_that_the_kernel_holds_to_its_memory_is_not_watched(stage: Stage, files: Path) -> None:
    folder = starts(stage, files, ONE, 77)
    assert (folder / "memory.max").read_text().strip() == str(100 << 20)
    assert stage.executor.limits() == {}
    stage.executor.obey([running(TWO, memory_mib=100)])  # by a launcher that knows no groups
    stage.executor.hear([Spawned(TWO, 78, 780, child=True)])
    assert stage.executor.limits() == {TWO: (78, 100 << 20)}
    stage.executor._holding._groups = Groups(str(files))
    stage.executor._holding.hold(stage.spool.runs[ONE])
    assert stage.executor.limits()[ONE] == (str(folder), 100 << 20)


@pytest.mark.parametrize(
    ("kills", "ended", "reported"),
    [
        (3, Ended(ONE, 0, 9), Exited(signal=9, out_of_memory=True)),
        (3, Ended(ONE, 137, 0), Exited(137, out_of_memory=True)),
        (3, Ended(ONE, 0, 0), Exited()),  # of groups that it has made itself, one was killed, and it went on
        (0, Ended(ONE, 0, 9), Exited(signal=9)),
    ],
)
async def test_the_kernel_says_what_it_has_killed_for_want_of_memory(
    stage: Stage, files: Path, monkeypatch: pytest.MonkeyPatch, kills: int, ended: Ended, reported: Exited
) -> None:
    folder = starts(stage, files, ONE, 77)
    monkeypatch.setattr(
        "node_agent.processes.memory_watch.OomKills.read", lambda _: 1_000_000
    )  # others were killed on this node
    (folder / "memory.events").write_text(f"low 0\noom_kill {kills}\n")
    stage.executor.hear([ended])
    assert stage.spool.pending()[-1].event == reported


async def test_a_kill_is_for_all_of_the_group(stage: Stage, files: Path) -> None:
    folder = starts(stage, files, ONE, 77)
    (folder / "cgroup.kill").write_text("")
    stage.executor.obey([stopped(ONE, 60)])
    assert (folder / "cgroup.kill").read_text() == ""  # not yet, and not by SIGTERM
    stage.executor.obey([stopped(ONE, 0, generation=3)])
    assert (folder / "cgroup.kill").read_text() == "1"
    assert stage.signals == [(77, signal.SIGTERM), (77, signal.SIGKILL)]


async def test_a_group_that_cannot_be_made_is_the_nodes_fault(stage: Stage, files: Path) -> None:
    files.rmdir()
    stage.executor.obey([running(ONE)])
    assert stage.launcher.asked == []
    assert stage.executor.starting.retries.timers[ONE].when() > time.monotonic()


@pytest.mark.parametrize("policy", ["auto", "require", "off"])
def test_the_setting(policy: str) -> None:
    flags = {"scheduler": "127.0.0.1:1", "devices": "cpu-20c", "state": "s"}
    assert load(flags | {"control_groups": policy}).control_groups == policy
    with pytest.raises(BadSettings, match="--control-groups: Input should be 'auto', 'require' or 'off'"):
        load(flags | {"control_groups": "some"})
