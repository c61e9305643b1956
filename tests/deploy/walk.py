"""Walks docs/installing.md through: `python -m tests.deploy.walk`, as root, with debootstrap and systemd-nspawn.
Not a part of the suite: it takes minutes, and the network.

Two machines are made from nothing (Debian, minimal), each with a systemd of its own as process 1. Every fence ```sh MACHINE of
the page is run there as it stands, in the page's order. What differs from two real machines: they share this machine's
network, so that a free port stands for 7737; `scp` only copies; and there are no GPUs. Between the page's steps it is looked
whether the page's promises hold.
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from examples.cluster import free_port
from tests.deploy.guide import GUIDE, MACHINES, blocks

ROOT = Path(__file__).parents[2]
PACKAGES = "systemd,systemd-sysv,dbus,procps,ca-certificates"
HOSTS = {"scheduler": "sched", "node": "n1"}
LIMIT = 180.0
_SETUP = """
mkdir -p /sys/fs/cgroup/walk; echo $$ > /sys/fs/cgroup/walk/cgroup.procs   # else we were in a group of the machine around
scp() { while [ $# -gt 1 ]; do cp "$1" /wire/; shift; done; }
"""
_AS_ALICE = (
    "export PATH=/opt/ebb/bin:$PATH EBB_ADDRESS=sched.example.org:7737 EBB_TLS_CA=/etc/ebb/ca.pem"
    " EBB_TOKEN_FILE=/root/alice.token\n"
)


def say(text: str) -> None:
    sys.stdout.write(f"\033[1m== {text}\033[0m\n")
    sys.stdout.flush()


def until(what: str, look: Callable[[], object], limit: float = LIMIT) -> None:
    end = time.monotonic() + limit
    while not look():
        if time.monotonic() > end:
            raise AssertionError(f"did not come about: {what}")
        time.sleep(0.2)
    say(f"holds: {what}")


class Machine:
    """A root folder in which systemd runs. `port` stands for 7737."""

    def __init__(self, root: Path, host: str, port: int) -> None:
        self.root, self.host, self.port = root, host, port

    @contextlib.contextmanager
    def up(self) -> Iterator["Machine"]:
        with (self.root.parent / f"{self.host}.console").open("wb") as console:
            command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", f"--directory={self.root}"]
            container = subprocess.Popen(
                [*command, f"--machine={self.host}"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )
            try:
                children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
                until(f"{self.host} boots", lambda: container.poll() is None and children.read_text().strip(), 30)
                self.init = int(children.read_text())
                until(f"systemd runs on {self.host}", lambda: "running" in self.ask("systemctl is-system-running || true"), 60)
                yield self
            finally:
                os.kill(self.init, signal.SIGRTMIN + 4)  # power off
                try:
                    container.wait(30)
                except subprocess.TimeoutExpired:
                    os.kill(self.init, signal.SIGKILL)
                    container.wait(30)

    def run(self, script: str, capture: bool = False) -> str:
        """As root's shell would; raises where a command fails."""
        script = script.replace("7737", str(self.port))
        done = subprocess.run(
            ["nsenter", f"--target={self.init}", "--all", "sh", "-eu"],
            input=_SETUP + script,
            text=True,
            check=False,
            timeout=900,
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.STDOUT if capture else None,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"},
        )
        if done.returncode:
            raise AssertionError(f"status {done.returncode} on {self.host} of:\n{script}\n{done.stdout or ''}")
        return done.stdout or ""

    def ask(self, script: str) -> str:
        return self.run(script, capture=True).strip()

    def main_pid(self, unit: str) -> int:
        return int(self.ask(f"systemctl show --value -p MainPID {unit}"))

    def status(self, unit: str) -> str:
        return self.ask(f"systemctl show --value -p StatusText {unit}")


def make_roots(folder: Path, suite: str, mirror: str) -> dict[str, Machine]:
    base = folder / "base"
    if not base.exists():
        say(f"a minimal Debian ({suite})")
        draft = folder / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, draft, mirror], check=True)
        draft.rename(base)
    machines = {}
    port = free_port()
    for name, host in HOSTS.items():
        root = folder / host
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", base, root], check=True)
        (root / "etc/hostname").write_text(f"{host}\n")
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{_own_address()} sched.example.org n1\n")
        (root / "wire").mkdir(mode=0o700)
        if authorities := os.environ.get("SSL_CERT_FILE"):  # what this site's machines trust
            shutil.copy(authorities, root / "etc/ssl/certs/ca-certificates.crt")
            (root / "etc/pip.conf").write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")
        machines[name] = Machine(root, host, port)
    return machines


def _own_address() -> str:
    """Not loopback: that is what other machines would see of themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        address: str = probe.getsockname()[0]
        return address


def promises(machines: Mapping[str, Machine]) -> None:
    """What the page says of restarts, on a job that runs all the while."""
    scheduler, node = machines["scheduler"], machines["node"]
    job = int(scheduler.ask(f"{_AS_ALICE} ebb submit -q --name long --cwd /tmp -- sh -c 'env | sort; exec sleep 100000'"))

    def state() -> str:
        return scheduler.ask(f"{_AS_ALICE} ebb show {job} -o json | tr -d ' \\n' | sed 's/.*\"state\":\"\\([A-Z]*\\).*/\\1/'")

    def pid() -> str:
        return node.ask("pgrep -x -f 'sleep 100000' || true")

    until("a job runs", lambda: state() == "RUNNING" and pid())
    before = pid()
    group = node.ask(f"grep ^0:: /proc/{before}/cgroup")
    assert group.startswith("0::/system.slice/ebb-agent.service"), group
    say(f"the job is in {group}")
    environment = scheduler.ask(f"{_AS_ALICE} ebb logs {job}")
    assert "EBB_JOB_ID" in environment, environment
    assert not [name for name in ("NOTIFY", "WATCHDOG", "EBB_AGENT", "PYTHON") if name in environment], environment
    say(f"the job's environment:\n{environment}")

    def taken_up(agent: int) -> bool:
        there = node.main_pid("ebb-agent") not in (0, agent) and node.status("ebb-agent").startswith("connected to")
        return there and pid() == before and state() == "RUNNING"

    assert node.status("ebb-agent").startswith(f"connected to sched.example.org:{node.port} "), node.status("ebb-agent")
    assert scheduler.status("ebb-scheduler") == "leads in epoch 1", scheduler.status("ebb-scheduler")
    doctor = "runuser -u ebb-agent -- /opt/ebb/bin/ebb-agent doctor --config /etc/ebb/agent.yaml"
    well = node.ask(doctor)  # as there is no problem
    assert "ok       limits          the agent and its jobs have" in well, well  # and not a shell's 1024
    say(f"the doctor, while the agent runs:\n{well}")
    agent = node.main_pid("ebb-agent")
    node.run("systemctl restart ebb-agent")
    until("systemctl restart ebb-agent: the job goes on", lambda: taken_up(agent))
    node.run("systemctl stop ebb-agent")
    assert pid() == before
    agent = 0
    node.run("systemctl start ebb-agent")
    until("systemctl stop, then start: the job goes on", lambda: taken_up(agent))
    agent = node.main_pid("ebb-agent")
    node.run(f"kill -KILL {agent}")
    until("the agent is killed: systemd starts it again, and the job goes on", lambda: taken_up(agent))
    agent = node.main_pid("ebb-agent")
    node.run(f"kill -STOP {agent}")
    until("the agent stands still: the watchdog starts it again, and the job goes on", lambda: taken_up(agent))
    assert "watchdog" in node.ask("journalctl -u ebb-agent").lower()
    agent = node.main_pid("ebb-agent")
    scheduler.run("systemctl stop ebb-scheduler")
    until("the scheduler is stopped: the agent says so", lambda: "cannot be reached" in node.status("ebb-agent"))
    node.run("systemctl restart ebb-agent")  # returns, though there is no scheduler
    scheduler.run("systemctl start ebb-scheduler")
    until("an agent starts without its scheduler, which then comes: the job goes on", lambda: taken_up(agent))
    scheduler.run("systemctl kill --signal=KILL --kill-whom=main ebb-scheduler")
    until("the scheduler is killed: systemd starts it again", lambda: scheduler.status("ebb-scheduler").startswith("leads in"))
    until("and the job goes on", lambda: taken_up(0))
    for machine in machines.values():
        said = machine.ask("journalctl --no-pager")
        assert "unexpected PID" not in said, said
    node.run("systemd-analyze --no-pager security ebb-agent | tail -1; systemctl --no-pager status ebb-agent")
    scheduler.run("systemd-analyze --no-pager security ebb-scheduler | tail -1; systemctl --no-pager status ebb-scheduler")


def still_there(machines: Mapping[str, Machine]) -> None:
    listed = machines["scheduler"].ask(f"{_AS_ALICE} ebb list --no-header")
    until("after the upgrade the job still runs", lambda: machines["node"].ask("pgrep -x -f 'sleep 100000'"), 5)
    say(listed)


def nothing_left(machines: Mapping[str, Machine]) -> None:
    for machine in machines.values():
        left = machine.ask("ps -eo args | grep -v -e grep -e 'ps -eo' | grep -e ebb -e 'sleep 1000' -e postgres || true")
        left += machine.ask("ls -d /opt/ebb /etc/ebb /var/lib/ebb* /var/log/ebb /etc/systemd/system/*ebb* 2>/dev/null || true")
        assert not left, left
    say("holds: nothing is left")


_BEFORE: Mapping[str, Callable[[Mapping[str, Machine]], None]] = {"Upgrading": promises, "Uninstalling": still_there}


def walk(machines: Mapping[str, Machine]) -> None:
    shown = []
    done = set()
    for block in blocks(GUIDE.read_text()):
        if block.heading in _BEFORE and block.heading not in done:
            done.add(block.heading)
            _BEFORE[block.heading](machines)
        if block.machine not in MACHINES:
            shown.append(block)
            continue
        say(f"{block.heading}, on the {block.machine}:\n{block.script}")
        machines[block.machine].run(block.script)
        for file in (machines["scheduler"].root / "wire").iterdir():
            shutil.move(file, machines["node"].root / "root" / file.name)
    nothing_left(machines)
    for block in shown:
        say(f"not run, under {block.heading!r}:\n{block.script}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--folder", type=Path, help="keep the bare root here, for the next walk")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        machines = make_roots(folder.absolute(), given.suite, given.mirror)
        ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist")
        shutil.copytree(ROOT, machines["scheduler"].root / "root/ebb", ignore=ignored)
        for machine in machines.values():
            stack.enter_context(machine.up())
        try:
            walk(machines)
        except BaseException:
            for machine in machines.values():
                log = machine.ask("journalctl --no-pager -u ebb-agent -u ebb-scheduler -n 40")
                say(f"the units' log on {machine.host}:\n{log}")
            raise


if __name__ == "__main__":
    main()
