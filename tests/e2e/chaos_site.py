"""A cluster whose scheduler, agents, links and disks can be made to fail, and which gets over it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from client_sdk import Client
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
    """A scheduler and three agents, each with a link through a relay. `heal` ends faults whose time is over."""

    def __init__(self, folder: Path, shared_storage: bool, policy: str = "fitgpp") -> None:
        settings = folder / "scheduler.yaml"
        settings.write_text(SETTINGS + POLICIES[policy])
        self.site = Site(folder / "site", ("--config", str(settings)), nodes=())
        self.shared_storage = shared_storage
        self.disks: dict[str, Disk] = {}
        self.relays: dict[str, Relay] = {}
        self._filled: set[str] = set()
        self._heals: list[tuple[float, str, str]] = []
        """When, what, whose."""

    def __enter__(self) -> "ChaosSite":
        self.site.__enter__()
        try:
            self._make_disks()
            for node in NODES:
                self.relays[node] = Relay(self.site.cluster.listen)
                storage = self.site.cluster.checkpoints if self.shared_storage else self.site.folder / node / "checkpoints"
                flags = ("--scheduler", self.relays[node].address, "--checkpoints", str(storage))
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
        for relay in self.relays.values():
            relay.close()
        left = leftovers(self.site.folder)
        for disk in self.disks.values():
            disk.close()
        assert not left

    def _make_disks(self) -> None:
        """None if this process may not mount them: then no disk is filled."""
        folders = {node: self.site.folder / node for node in NODES}
        if self.shared_storage:
            folders["checkpoints"] = self.site.cluster.checkpoints
        with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
            for name, folder in folders.items():
                self.disks[name] = Disk(folder)

    # ---- faults --------------------------------------------------------------------------------------------------------

    def kill(self, name: str, seconds: float) -> None:
        """The scheduler or an agent."""
        self.site.cluster.kill(name)
        self._forget("start", name)
        self._later(seconds, "start", name)

    def stop_agent(self, node: str, seconds: float) -> None:
        self.site.cluster.kill(node, signal.SIGSTOP)
        self._later(seconds, "continue", node)

    def cut(self, node: str, seconds: float) -> None:
        self.relays[node].cut()
        self._later(seconds, "mend", node)

    def silence(self, node: str, seconds: float) -> None:
        self.relays[node].silence()
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
        return self.site.cluster.processes["scheduler"].poll() is None

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
                    self.relays[whose].mend()
                case "clear":
                    self.disks[whose].clear()
        return [f"{what} {whose}" for _, what, whose in due]

    def heal_all(self) -> None:
        while self._heals or any(self.site.cluster.processes[name].poll() is not None for name in ("scheduler", *NODES)):
            self._heals = [(0, what, whose) for _, what, whose in self._heals]
            self.heal()

    def _start(self, name: str) -> None:
        if self.site.cluster.processes[name].poll() is not None:
            if name == "scheduler":
                self.site.restart_scheduler()
            else:
                self.site.cluster.restart_agent(name)

    def _note_ended(self) -> None:
        """Starts agents again that have ended by themselves, which they may if their disk is full, and only then."""
        starting = {whose for _, what, whose in self._heals if what == "start"}
        for name in ("scheduler", *NODES):
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
