"""A cluster whose scheduler, agents, links and disks can be made to fail, and which gets over it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from client_sdk import Client
from scheduler_service.store.embedded.server import Embedded
from tests.harness import Relay, Site, leftovers

NODES = ("n1", "n2", "n3")
SETTINGS = "heartbeat: 0.5\nsilent_after: 2\nretry_pause: 0\npark_limit: 20\nblame_nodes: 0\nbad_node_strikes: 0\n"
"""Nobody is blamed for the faults: neither are jobs given up that fail everywhere, nor are nodes drained."""
POLICIES = {
    "fitgpp": "policy: fitgpp\n",
    "gandiva": "policy: gandiva\npolicy_settings: {period: 4, switching_cost: 0, rotate: 8}\n",
}
"""Of a site: under gandiva, turns and moves follow each other quickly."""
DISK = "48m"
"""Enough for what an agent and its jobs write."""
LEASE = 2
"""Seconds until the second scheduler leads after the first was killed."""
AGAIN = 0.3
"""Seconds until an agent that has ended by itself is started again, as a service manager does."""


class Disk:
    """A small file system for a folder, which can be filled."""

    def __init__(self, folder: Path) -> None:
        """Raises CalledProcessError if this process may not mount one."""
        self._folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "ebb-chaos", str(folder)]
        subprocess.run(command, check=True, capture_output=True)

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self._folder], check=True)


class ChaosSite:
    """A scheduler, or two, and three agents, each with a link to each scheduler through a relay. `heal` ends faults whose time
    has come."""

    def __init__(self, folder: Path, shared_storage: bool, policy: str = "fitgpp", two: bool = False) -> None:
        """With `two`, a second scheduler is the standby; both use a database of their own."""
        settings = folder / "scheduler.yaml"
        settings.write_text(SETTINGS + POLICIES[policy] + (f"lease: {LEASE}\n" if two else ""))
        self._postgres = Embedded(folder / "pg", state_dir=folder / "state") if two else None
        database = self._postgres.start() if self._postgres else None
        self.site = Site(folder / "site", ("--config", str(settings)), nodes=(), database=database)
        self.schedulers = ("scheduler", "standby") if two else ("scheduler",)
        self.shared_storage = shared_storage
        self.disks: dict[str, Disk] = {}
        self.relays: dict[str, list[Relay]] = {}
        """Of each node, one to each scheduler."""
        self._filled: set[str] = set()
        self._heals: list[tuple[float, str, str]] = []
        """When, what, whose."""

    def __enter__(self) -> "ChaosSite":
        try:
            self.site.__enter__()
        except BaseException:
            self._stop_postgres()
            raise
        try:
            self._make_disks()
            for node in NODES:
                self.relays[node] = [Relay(address) for address in self.site.cluster.address.split(",")]
                storage = self.site.cluster.checkpoints if self.shared_storage else self.site.folder / node / "checkpoints"
                schedulers = ",".join(relay.address for relay in self.relays[node])
                flags = ("--scheduler", schedulers, "--checkpoints", str(storage))
                self.site.cluster.start_agent(node, "dgx-a100", *flags)
            self.site.nodes = list(NODES)
            self.site.wait_connected()
        except BaseException:
            self.__exit__()
            raise
        self.client = Client(self.site.cluster.address, timeout=1)
        return self

    def __exit__(self, *_: object) -> None:
        self._heals = [(0, what, whose) for _, what, whose in self._heals if what != "start"]
        self.heal()
        self.site.__exit__()
        self._stop_postgres()
        for relays in self.relays.values():
            for relay in relays:
                relay.close()
        left = leftovers(self.site.folder)
        for disk in self.disks.values():
            disk.close()
        assert not left

    def _stop_postgres(self) -> None:
        if self._postgres is not None:
            self._postgres.stop()

    def _make_disks(self) -> None:
        """None if this process may not mount them: then no disk is filled."""
        folders = {node: self.site.folder / node for node in NODES}
        if self.shared_storage:
            folders["checkpoints"] = self.site.cluster.checkpoints
        with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
            for name, folder in folders.items():
                self.disks[name] = Disk(folder)

    # ---- faults --------------------------------------------------------------------------------------------------------

    def kill_scheduler(self, seconds: float) -> None:
        """The one that leads; if no scheduler leads at the moment, the first."""
        self.kill((self.site.leader() if self.site.two else "") or "scheduler", seconds)

    def kill(self, name: str, seconds: float) -> None:
        """A scheduler or an agent."""
        self.site.cluster.kill(name)
        self._forget("start", name)
        self._later(seconds, "start", name)

    def stop_agent(self, node: str, seconds: float) -> None:
        self.site.cluster.kill(node, signal.SIGSTOP)
        self._later(seconds, "continue", node)

    def cut(self, node: str, seconds: float) -> None:
        for relay in self.relays[node]:
            relay.cut()
        self._later(seconds, "mend", node)

    def silence(self, node: str, seconds: float) -> None:
        for relay in self.relays[node]:
            relay.silence()
        self._later(seconds, "mend", node)

    def fill(self, name: str, seconds: float) -> None:
        self.disks[name].fill()
        self._filled.add(name)
        self._later(seconds, "clear", name)

    def _later(self, seconds: float, what: str, whose: str) -> None:
        self._heals.append((time.monotonic() + seconds, what, whose))

    def _forget(self, what: str, whose: str) -> None:
        self._heals = [heal for heal in self._heals if heal[1:] != (what, whose)]

    @property
    def led(self) -> bool:
        """A scheduler is there."""
        return any(self.site.cluster.processes[name].poll() is None for name in self.schedulers)

    # ---- healing -------------------------------------------------------------------------------------------------------

    def heal(self) -> list[str]:
        """Whatever is due. Returns what was done."""
        self._note_ended()
        now = time.monotonic()
        due = sorted(heal for heal in self._heals if heal[0] <= now)
        self._heals = [heal for heal in self._heals if heal[0] > now]
        for _, what, whose in due:
            match what:
                case "start":
                    self._start(whose)
                case "continue":
                    self.site.cluster.kill(whose, signal.SIGCONT)
                case "mend":
                    for relay in self.relays[whose]:
                        relay.mend()
                case "clear":
                    self.disks[whose].clear()
        return [f"{what} {whose}" for _, what, whose in due]

    def heal_all(self) -> None:
        while self._heals or any(self.site.cluster.processes[name].poll() is not None for name in (*self.schedulers, *NODES)):
            self._heals = [(0, what, whose) for _, what, whose in self._heals]
            self.heal()

    def _start(self, name: str) -> None:
        if self.site.cluster.processes[name].poll() is not None:
            if name not in self.schedulers:
                self.site.cluster.restart_agent(name)
            elif self.site.two:
                self.site.cluster.start_standby(name)
            else:
                self.site.restart_scheduler()

    def _note_ended(self) -> None:
        """Starts agents again that have ended by themselves, which they may if their disk is full, and only then."""
        starting = {whose for _, what, whose in self._heals if what == "start"}
        for name in (*self.schedulers, *NODES):
            process = self.site.cluster.processes[name]
            if process.poll() is None or name in starting:
                continue
            assert {name, "checkpoints"} & self._filled, (
                f"{name} has ended by itself, with {process.returncode}:\n{self.site.cluster.tail(name, 40)}"
            )
            self._later(AGAIN, "start", name)

    def kill_process(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
