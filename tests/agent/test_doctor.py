"""The doctor on machines that are ill in every way it knows: where that can be, really so."""

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner

from node_agent.commands.main import main
from node_agent.config import DeviceSettings
from node_agent.devices.reading import Gpu, Reading
from node_agent.doctor import command, gpus, machine, storage
from node_agent.doctor.findings import Finding, examine, ok
from node_agent.errors import DriverSilent
from tests.agent.conftest import AgentProcess, until
from tests.agent.fake_scheduler import FakeScheduler
from tests.store.fixtures import short_dir

T = TypeVar("T")
NOBODY = 65534
_CALLS = {"x86_64": (117, 119, 116), "aarch64": (147, 149, 159)}
"""The numbers of setresuid, setresgid and setgroups: those of the C library are for all threads."""


def the(findings: Iterator[Finding] | Sequence[Finding], level: str, text: str, do: str = "") -> None:
    """Among them is one of this level that says so, and what to do."""
    every = list(findings)
    assert every
    assert all(bool(finding.do) == (finding.level != "ok") for finding in every), "what is not well has a remedy"
    assert [finding for finding in every if finding.level == level and text in finding.text and do in finding.do], every


def as_nobody(ask: Callable[[], T]) -> T:
    """What a user without rights gets: on Linux a thread has an identity of its own."""

    def in_thread() -> T:
        if os.geteuid() == 0:
            libc = ctypes.CDLL(None, use_errno=True)
            setresuid, setresgid, setgroups = _CALLS[os.uname().machine]
            assert libc.syscall(setgroups, 0, None) == 0
            assert libc.syscall(setresgid, NOBODY, NOBODY, NOBODY) == 0
            assert libc.syscall(setresuid, NOBODY, NOBODY, NOBODY) == 0
        return ask()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(in_thread).result(30)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others can reach."""
    with short_dir() as made:
        yield made


@pytest.fixture
def tmpfs(folder: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system in memory, with such options."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = folder / f"tmpfs-{len(mounted)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", place], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", place], check=True)


def mountinfo() -> str:
    return Path("/proc/self/mountinfo").read_text()


def mounted_as(kind: str, place: Path, source: str = "server:/export") -> str:
    return f"1 0 0:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 0:2 / {place} rw,relatime shared:2 - {kind} {source} rw\n"


# ---- the machine -------------------------------------------------------------------------------------------------------


def test_kernel() -> None:
    the(machine.kernel("6.1.0", os.pidfd_open), "ok", "Linux 6.1.0")
    for number, do in ((errno.ENOSYS, "5.3"), (errno.EPERM, "seccomp")):

        def refused(_: int, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        the(machine.kernel("4.19.0", refused), "problem", "pidfd_open", do)


def test_user() -> None:
    the(machine.user(0, False, True), "problem", "this is root", "runuser -u ebb-agent")
    the(machine.user(0, True, True), "warning", "so do all jobs")
    the(machine.user(NOBODY, False, True), "warning", "nobody (65534) is no system user", "useradd --system")
    the(machine.user(NOBODY, False, False), "ok", "nobody (65534)")
    the(machine.user(1, False, True), "ok", "daemon (1)")
    the(machine.user(4_000_000_000, False, False), "ok", "number 4000000000")


def test_control_groups(folder: Path) -> None:
    mounts, membership = f"1 0 0:1 / {folder} rw - cgroup2 none rw\n", "1:name=x:/\n0::/ebb.service/agent\n"

    def found(mounts: str = mounts, agent: int = 1) -> list[Finding]:
        return as_nobody(lambda: list(machine.control_groups(membership, mounts, agent)))

    the(found("1 0 0:1 / / rw - ext4 none rw\n"), "warning", "no cgroup v2 is mounted")
    the(found(agent=0), "ok", "is seen once it runs")
    the(list(machine.control_groups("0::/../..\n", mounts, 0)), "ok", "is seen once it runs")
    the(list(machine.control_groups("0::/../..\n", mounts, 1)), "warning", "no cgroup v2")
    the(found(), "warning", "is not the agent's own", "ebb-agent.service")
    unit = folder / "ebb.service"
    for group in (unit, unit / "agent", unit / "runs"):
        group.mkdir(parents=True)
        group.chmod(0o777)
        for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.controllers", "cgroup.type"):
            (group / name).touch()
            (group / name).chmod(0o666)
    the(found(), "warning", "has no memory controller")
    (unit / "cgroup.controllers").write_text("cpu memory\n")
    the(found(), "warning", "does not hold runs to their memory", "254")
    (unit / "runs" / "cgroup.subtree_control").write_text("memory\n")
    the(found(), "ok", f"{unit} is the agent's, and the kernel holds")


def test_limits() -> None:
    """As the kernel says it of a process that has these."""

    def of(limits: str) -> str:
        return subprocess.run(
            ["prlimit", *limits.split(), "cat", "/proc/self/limits"], capture_output=True, text=True, check=True
        ).stdout

    the(machine.limits(of("--nofile=1024:5000"), 1, False), "warning", "1024 open files (at most 5000)", "LimitNOFILE")
    the(machine.limits(of("--nofile=5000 --nproc=500:"), 1, False), "warning", "500 processes", "LimitNPROC")
    pinned = of("--nofile=5000:5000 --memlock=65536:65536")
    the(machine.limits(pinned, 1, True), "warning", "may lock 64 KiB", "LimitMEMLOCK")
    the(machine.limits(pinned, 1, False), "ok", "5000 open files")
    the(machine.limits(of("--nofile=1024:5000"), 0, False), "ok", "no agent runs here; from this shell it would have 1024 open")


def test_shared_memory(tmpfs: Callable[[str], Path], folder: Path) -> None:
    the(machine.shared_memory(tmpfs("size=64m,mode=1777")), "warning", "has 0.1 GiB", "--shm-size")
    the(machine.shared_memory(tmpfs("size=2g,mode=1777")), "ok", "has 2.0 GiB")
    the(as_nobody(lambda: list(machine.shared_memory(folder))), "problem", "cannot be written", "1777")


def test_memory() -> None:
    plain = "MemTotal:       16777216 kB\nMemFree: 1 kB\nSwapTotal:             0 kB\nHugePages_Total:       0\n"
    the(machine.memory(plain, "0\n"), "ok", "16.0 GiB of memory, no swap")
    the(machine.memory(plain, "2\n"), "warning", "overcommit", "sysctl")
    the(machine.memory(plain.replace("        0 kB", "  1048576 kB"), "0\n"), "warning", "1.0 GiB of swap", "swapoff")


def test_clock() -> None:
    the(machine.clock(lambda: 5), "warning", "nothing keeps the clock right", "chrony")
    the(machine.clock(lambda: 0), "ok", "NTP")
    assert machine.adjtimex() in range(6)


# ---- folders -----------------------------------------------------------------------------------------------------------


def test_which_file_system() -> None:
    text = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:30 / /srv rw,relatime shared:9 master:2 - nfs4 nas:/srv rw\n"
        "31 30 0:31 / /srv/a\\040b rw - tmpfs none rw\n"
        "32 22 0:32 / /srv rw - cifs //nas/other rw\n"
    )
    assert storage.mount_of(Path("/srv/x"), text) == storage.Mount("/srv", "cifs", "//nas/other"), "the later one hides"
    assert storage.mount_of(Path("/srv/a b/c"), text).kind == "tmpfs"
    assert storage.mount_of(Path("/srvx"), text).source == "/dev/sda1"


def test_a_state_directory(folder: Path) -> None:
    the(storage.state(folder, mountinfo(), 0), "ok", f"{folder} can be written")
    the(storage.state(folder / "a" / "b", mountinfo(), 0), "ok", f"can be made in {folder}")
    the(storage.state(folder, mountinfo(), 17), "ok", "belongs to the agent that runs (pid 17)")
    assert not list(folder.iterdir()), "nothing is left behind"
    (folder / "file").touch()
    the(storage.state(folder / "file" / "x", mountinfo(), 0), "problem", "is something else")
    the(storage.checkpoints(folder / "file", mountinfo(), 1), "problem", "is something else")


def test_a_folder_of_somebody_else(folder: Path) -> None:
    (folder / "theirs").mkdir(mode=0o755)
    (folder / "hidden" / "inner").mkdir(parents=True)
    (folder / "hidden").chmod(0o700)
    for place in (folder / "theirs", folder / "hidden" / "inner"):
        the(as_nobody(lambda p=place: list(storage.state(p, mountinfo(), 0))), "problem", "Permission denied", "install -d -o")  # type: ignore[misc]
        the(
            as_nobody(lambda p=place: list(storage.checkpoints(p, mountinfo(), 0))),
            "problem",
            "Permission denied",
            "install -d -o",
        )  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "said", "do"),
    [
        ("tmpfs", "a reboot loses the logs", "a folder on a disk"),
        ("overlay", "in a container's own layer", "mount a volume"),
        ("nfs4", "on the network (nfs4 from server:/export)", "a local disk"),
    ],
)
def test_where_a_state_directory_should_not_be(folder: Path, kind: str, said: str, do: str) -> None:
    the(storage.state(folder, mounted_as(kind, folder), 0), "warning", said, do)


def test_checkpoints_that_other_nodes_see(folder: Path) -> None:
    the(storage.checkpoints(folder, mounted_as("nfs4", folder), 737), "ok", "user number, 737")
    the(storage.checkpoints(folder, mounted_as("fuse.sshfs", folder), 737), "ok", "fuse.sshfs")
    the(storage.checkpoints(folder, mounted_as("xfs", folder), 737), "warning", "on this machine alone (xfs", "nodes share")
    the(storage.checkpoints(folder, mounted_as("xfs", folder), 737), "warning", "from the agent here", "checkpoint_store")


def test_a_file_system_that_is_read_only(tmpfs: Callable[[str], Path]) -> None:
    place = tmpfs("ro")
    the(storage.state(place, mountinfo(), 0), "problem", "Read-only file system", "mount it so that it can be written")
    the(storage.state(place, mountinfo(), 0), "warning", f"in memory (tmpfs on {place})")


def test_a_full_disk(tmpfs: Callable[[str], Path]) -> None:
    place = tmpfs("size=1m")
    with contextlib.suppress(OSError):
        (place / "much").write_bytes(bytes(2 << 20))
    the(storage.checkpoints(place, mountinfo(), 1), "problem", "No space left on device", "make room")
    the(storage.room(place), "problem", "0 MiB free", "make room")
    the(storage.room(tmpfs("size=512m")), "warning", "512 MiB free", "soon")
    the(storage.room(tmpfs("size=2g,nr_inodes=50")), "problem", "room for 4", "make room")
    the(storage.room(tmpfs("size=2g,nr_inodes=5000")), "warning", "room for 4999 files", "soon")
    the(storage.room(tmpfs("size=2g,nr_inodes=0")), "ok", "2.0 GiB free")


def test_who_has_the_lock(state: Path, agent: Callable[..., AgentProcess]) -> None:
    def holder() -> int:
        return storage.lock_holder(state, Path("/proc/locks").read_text())

    assert holder() == 0
    running = agent()
    until(lambda: holder() == running.process.pid)
    running.kill()
    assert holder() == 0, "its number still stands in the file"


# ---- GPUs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def proc(folder: Path) -> Path:
    """Of a machine with NVIDIA's driver."""
    place = folder / "proc"
    place.mkdir()
    (place / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15\nGCC version:  gcc\n")
    return place


@pytest.fixture
def dev(folder: Path) -> Path:
    place = folder / "dev"
    place.mkdir()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia3"):
        (place / name).touch()
        (place / name).chmod(0o666)
    return place


def smi(folder: Path, script: str) -> str:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def gpu(index: int, fault: str = "") -> Gpu:
    return Gpu(uuid=f"GPU-{index}", name="H100", pci=f"0000:0{index}:00.0", memory_mib=81_920, minor=index, fault=fault)


def reader(*of: Gpu, problems: tuple[str, ...] = ()) -> gpus.Reader:
    async def read(_: float) -> Reading:
        return Reading(driver="570.86", nvml="12.570", gpus=of, problems=problems)

    return read


def test_simulated_devices(proc: Path, folder: Path) -> None:
    the(gpus.check_simulated("dgx-a100", folder), "ok", "simulated (dgx-a100)")
    the(gpus.check_simulated("dgx-a100", proc), "warning", "its GPUs are not used", "devices: nvml")


def test_the_driver(proc: Path, folder: Path) -> None:
    the(gpus.driver(proc), "ok", "570.86.15")
    the(gpus.driver(folder), "problem", "not loaded", "install it")


def test_device_files(dev: Path) -> None:
    the(gpus.device_files((0, 3), dev), "ok", "4 device files")
    (dev / "nvidia-uvm").unlink()
    the(gpus.device_files((0, 3, 4), dev), "problem", f"{dev}/nvidia-uvm, {dev}/nvidia4 are missing", "nvidia-modprobe")
    (dev / "nvidia3").chmod(0o660)
    group = "root" if os.geteuid() == 0 else ""
    refused = as_nobody(lambda: list(gpus.device_files((0, 3), dev)))
    the(refused, "problem", f"{dev}/nvidia3 is not for this user: mode 0660, group {group}", f"usermod -aG {group}")


def test_persistence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    the(gpus.persistence(5, smi(folder, "printf '0, Enabled\\n1, Enabled\\n'")), "ok", "is on")
    the(gpus.persistence(5, smi(folder, "printf '0, Enabled\\n1, Disabled\\n'")), "warning", "off for GPU 1", "persistenced")
    the(gpus.persistence(5, smi(folder, "echo 'No devices were found'; exit 6")), "problem", "No devices were found", "dmesg")
    the(gpus.persistence(0.2, smi(folder, "exec sleep 60")), "problem", "does not answer within 0.2 s", "reboot")
    monkeypatch.setenv("PATH", "/nowhere")
    the(gpus.persistence(5), "warning", "there is no nvidia-smi")


def test_what_nvml_says() -> None:
    def read(*of: Gpu, **more: tuple[str, ...]) -> list[Finding]:
        return gpus.read_with_findings(reader(*of, **more), 5)[1]

    the(read(gpu(0), gpu(1)), "ok", "2 x H100; driver 570.86, NVML 12.570")
    the(read(gpu(0), gpu(1, "it has fallen off the bus")), "problem", "0000:01:00.0 (GPU-1): it has fallen off", "--gpu-reset")
    the(read(problems=("Driver/library version mismatch",)), "problem", "version mismatch", "reboot")
    the(read(), "problem", "NVML shows no GPU", "lspci")

    async def silent(_: float) -> Reading:
        raise DriverSilent(limit=5)

    the(gpus.read_with_findings(silent, 5)[1], "problem", "5", "dmesg")


def test_all_of_a_gpu_machine(proc: Path, dev: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(folder, "printf '0, Enabled\\n'")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    settings = DeviceSettings(reserve_memory=0)
    assert [finding.level for finding in gpus.check_real(5, settings, proc, dev, reader(gpu(0)))] == ["ok"] * 4
    found = [finding.level for finding in gpus.check_real(5, settings, folder, dev)]
    assert found == ["problem"], "without a driver nothing else is asked"


def test_a_device_tree_that_does_not_fit(folder: Path) -> None:
    """An agent does not start with one, so the doctor says so before it."""
    tree = folder / "tree.yaml"
    reading = asyncio.run(reader(gpu(0), gpu(1))(5))
    tree.write_text("levels: [board]\ndevices: {GPU-0: {path: [0]}, GPU-1: {path: [0]}}\n")
    assert list(gpus.check_offer(DeviceSettings(reserve_memory=0, device_tree=tree), reading)) == []
    tree.write_text("levels: [board]\ndevices: {GPU-0: {path: [0]}}\n")
    the(gpus.check_offer(DeviceSettings(reserve_memory=0, device_tree=tree), reading), "problem", "GPU-1", "ebb-agent devices")
    the(gpus.check_offer(DeviceSettings(reserve_memory=1e6), reading), "problem", "leave nothing for jobs", "ebb-agent devices")


# ---- the whole ---------------------------------------------------------------------------------------------------------


def test_a_check_that_fails_or_hangs_is_a_finding() -> None:
    never = threading.Event()

    def hangs() -> Iterator[Finding]:
        never.wait()
        yield ok("too late")

    def fails() -> Iterator[Finding]:
        yield ok("so far")
        raise KeyError("MemTotal")

    found = examine({"hangs": hangs, "fails": fails, "works": lambda: [ok("well")]}, 0.5)
    never.set()
    assert list(found) == ["hangs", "fails", "works"]
    the(found["hangs"], "problem", "did not answer within 0.5 s", "hangs")
    the(found["fails"], "warning", "could not be looked at: KeyError: 'MemTotal'")
    the(found["works"], "ok", "well")


def ask(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["doctor", *map(str, arguments)], env={"EBB_AGENT_ALLOW_ROOT": "true"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.exit_code, done.output


def test_criu() -> None:
    the(machine.criu(False, "whatever"), "ok", "off: programs that do not save their work lose it when they are stopped")
    the(machine.criu(True, ""), "ok", "CRIU can save programs of this machine that run on CPUs")
    lacks = "CRIU is too old (Version: 3.17.1)"
    lost = f"{lacks}. Programs that do not save their work lose it when they are stopped"
    the(machine.criu(True, f"{lacks}: install CRIU 4.2 or later"), "warning", lost, "install CRIU 4.2 or later")


def test_wrong_settings_are_findings_and_the_machine_is_looked_at_still(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("scheduler: sched\ndevices: dgx-a100\nsoftware: best\n")
    status, said = ask("--config", file, "-o", "json")
    found = json.loads(said)["findings"]
    assert (status, json.loads(said)["ok"]) == (1, False)
    texts = [finding["text"] for finding in found if finding["check"] == "settings"]
    assert len(texts) == 3
    assert all(any(name in text for text in texts) for name in ("--scheduler", "--state", "software: there is no such setting"))
    assert {"user", "kernel", "limits", "clock"} < {finding["check"] for finding in found}
    assert "scheduler" not in {finding["check"] for finding in found}


def test_a_machine_that_is_well_but_for_its_scheduler(state: Path, agent: Callable[..., AgentProcess]) -> None:
    flags = ("--scheduler", "127.0.0.1:1", "--devices", "dgx-a100", "--state", state)
    status, said = ask(*flags)
    problems = [line.split(maxsplit=2)[1] for line in said.splitlines() if line.startswith("PROBLEM")]
    assert (status, problems) == (1, ["scheduler"])
    assert "no agent runs here; from this shell" in said
    assert "simulated (dgx-a100)" in said
    assert said.splitlines()[-1].startswith("1 problem, ")
    running = agent()
    until(lambda: storage.lock_holder(state, Path("/proc/locks").read_text()))
    status, said = ask(*flags)
    assert f"belongs to the agent that runs (pid {running.process.pid})" in said
    assert "the agent and its jobs have" in said


def test_levels_and_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheduler: FakeScheduler) -> None:
    """Warnings do not count, nor does what is well."""
    monkeypatch.setattr(
        command, "machine_checks", lambda _: {"disk": lambda: [ok("much")], "clock": lambda: machine.clock(lambda: 5)}
    )
    monkeypatch.setattr(command, "settings_checks", lambda _: {})
    flags = ("--scheduler", scheduler.address, "--devices", "cpu-20c", "--state", tmp_path)
    status, said = ask(*flags)
    assert status == 0
    assert said.splitlines()[-1] == "0 problems, 1 warning"
    status, said = ask(*flags, "-o", "json")
    assert (status, json.loads(said)["ok"]) == (0, True)
    assert {finding["level"] for finding in json.loads(said)["findings"]} == {"ok", "warning"}
