"""Control groups (cgroup v2): the part of the hierarchy that was delegated to this agent, with a group for each run.

    <root>/agent                the agent and its launcher
    <root>/runs/<spool>.<run>   all processes of a run, such as 1a2b.17.1 or, of a gang, 1a2b.17.1.2

The kernel allows no processes in a group whose children have controllers, so the agent has a group of its own. `find_place`
changes nothing; `prepare_place` moves the agent and makes the folders.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from node_agent.errors import ControlGroupsMissing
from node_agent.processes.process_groups import is_populated, kill_inside, read, write

log = logging.getLogger(__name__)

AGENT = "agent"
RUNS = "runs"
MEMORY = "memory"
"""The only controller that is used."""
_SYSTEMD = "/run/systemd/system"
"""Exists where systemd runs, which owns all groups that it does not delegate."""
_UNIT = "in a systemd unit: Delegate=yes, DelegateSubgroup=agent and no ProtectControlGroups="

_WITHOUT = "Without it, what leaves the process group of its run is not killed with it, and memory is looked at once a second"
_WATCHED = "Without it, the memory of runs is looked at once a second"


@dataclass(frozen=True, slots=True)
class Place:
    """The place where runs can have groups, and what is missing there."""

    root: str = ""
    """Empty: nowhere."""
    inner: bool = False
    """The agent should be in a group inside `root`, and is not yet."""
    memory: bool = False
    """The kernel can limit the memory of runs."""
    missing: str = ""
    """Message on what is missing and how to fix it; empty if nothing is."""


class Groups:
    """The groups of runs. A run is named <spool>/<run>, as the launcher knows it. Without `runs`, no run has a group."""

    def __init__(self, runs: str = "", *, memory: bool = False, limits: bool = True) -> None:
        self._runs = runs
        self._memory = memory
        self._limits = limits

    def path(self, run: str) -> str:
        return f"{self._runs}/{run.replace('/', '.')}" if self._runs else ""

    def make(self, run: str, memory_mib: int) -> str:
        """Make the group of a run that is going to start; return its path. Harmless to repeat. Raises OSError."""
        path = self.path(run)
        if path:
            with suppress(FileExistsError):
                os.mkdir(path)  # noqa: PTH102
            self.limit_memory(run, memory_mib)
        return path

    def limit_memory(self, run: str, memory_mib: int) -> None:
        """Limit the group's memory, without swap: if it uses more, the kernel kills the whole group. 0: any amount."""
        if self._memory:
            path, limited = self.path(run), self._limits and memory_mib > 0
            write(f"{path}/memory.oom.group", "1")
            with suppress(OSError):  # a kernel that does not account for swap
                write(f"{path}/memory.swap.max", "0" if limited else "max")
            write(f"{path}/memory.max", str(memory_mib << 20) if limited else "max")

    def is_alive(self, run: str) -> bool:
        """Whether any process of the run lives in its group."""
        return is_populated(self.path(run))

    def kill(self, run: str) -> None:
        """Kill all processes in the run's group."""
        if self.is_alive(run):
            kill_inside(self.path(run))

    def is_limited(self, run: str) -> bool:
        """Whether the kernel enforces the run's memory limit, and reports it."""
        return self._memory and self.is_alive(run)

    def oom_kills(self, run: str) -> int | None:
        """Return how many of its processes the kernel has killed because memory ran out; None if the kernel does not count."""
        if self._memory:
            for line in read(f"{self.path(run)}/memory.events").splitlines():
                name, _, count = line.partition(b" ")
                if name == b"oom_kill":
                    return int(count)
        return None

    def remove(self, run: str) -> bool:
        """Remove its group, and those that it has made inside. Return False if something in it is still alive."""
        path = self.path(run)
        if path:
            try:
                for folder, _, _ in os.walk(path, topdown=False):
                    os.rmdir(folder)  # noqa: PTH106
            except FileNotFoundError:
                return True
            except OSError as error:
                log.debug("control group %s: %s", path, error.strerror)
                return False
        return True

    def find_runs(self) -> Iterator[str]:
        """Yield the runs of all spools that have a group here, including those of other agents."""
        if self._runs:
            for entry in os.scandir(self._runs):
                spool, dot, run = entry.name.partition(".")
                if dot and entry.is_dir(follow_symlinks=False):
                    yield f"{spool}/{run}"


def set_up_groups(policy: str, limits: bool) -> Groups:
    """Return the groups of this agent's runs, as `policy` wants them: auto, require or off."""
    if policy == "off":
        return Groups()
    membership, mounts = (Path(f"/proc/self/{name}").read_text(encoding="utf-8") for name in ("cgroup", "mountinfo"))
    place = find_place(own_group(membership, mounts), os.environ)
    groups, missing = prepare_place(place, limits)
    if missing and policy == "require":
        raise ControlGroupsMissing(missing=missing)
    if missing:
        log.warning("control groups: %s", missing)
    if place.root:
        log.info("each run is in a control group of its own, in %s/%s", place.root, RUNS)
    return groups


def own_group(membership: str, mounts: str) -> str:
    """Return the path of a process's group, by its /proc/<pid>/cgroup and mountinfo; empty if it cannot be seen.

    The hierarchy may be mounted next to those of version 1, and a container may see a part of it.
    """
    path = next((line.removeprefix("0::") for line in membership.splitlines() if line.startswith("0::")), "")
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if path and after.startswith("cgroup2 "):
            top, point = (_unescape(text).rstrip("/") for text in before.split(" ")[3:5])
            if path == top or (path.startswith(f"{top}/") and "/.." not in path):
                return (point + path.removeprefix(top)).rstrip("/")
    return ""


def _unescape(text: str) -> str:
    return re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), text)


def find_place(own: str, environ: Mapping[str, str], systemd: str = _SYSTEMD) -> Place:
    """Return what an agent in this group can do."""
    if not own:
        return Place(missing=f"no cgroup v2 is mounted here; boot with systemd.unified_cgroup_hierarchy=1. {_WITHOUT}")
    above, _, name = own.rpartition("/")
    root = above if name == AGENT and _may_make(above, systemd) else own
    if not _may_make(root, systemd):
        return Place(missing=f"{own} is not the agent's own: {_UNIT}; in a container: a writable /sys/fs/cgroup. {_WITHOUT}")
    if not os.path.exists(f"{root}/cgroup.type"):  # noqa: PTH110 (every group has it but the outermost)
        return Place(missing=f"{root} is the whole machine's group; start the agent {_UNIT}. {_WITHOUT}")
    inner = root == own
    controllers = read(f"{root}/cgroup.controllers").decode().split()
    if MEMORY not in controllers:
        has = ", ".join(controllers) or "none"
        return Place(root, inner, missing=f"{root} has no memory controller (it has: {has}); {_UNIT}. {_WATCHED}")
    if inner and "INVOCATION_ID" in environ:
        # While a controller is active below, the kernel lets no process into the unit's own group: while runs are alive,
        # systemd could not start the agent again.
        return Place(root, inner, missing=f"systemd has started the agent in {root} itself; {_UNIT} (systemd 254). {_WATCHED}")
    return Place(root, inner, memory=True)


def prepare_place(place: Place, limits: bool) -> tuple[Groups, str]:
    """Move the agent to its group, and make what runs need. Also return what is missing, in words."""
    if not place.root:
        return Groups(), place.missing
    runs = f"{place.root}/{RUNS}"
    try:
        Path(runs).mkdir(exist_ok=True)
        if place.inner:
            _move_inside(place.root)
    except OSError as error:
        return Groups(), f"{place.root}: {error.strerror}. {_WITHOUT}"
    if not place.memory:
        return Groups(runs), place.missing
    try:
        for group in (place.root, runs):
            if MEMORY not in read(f"{group}/cgroup.subtree_control").decode().split():
                write(f"{group}/cgroup.subtree_control", f"+{MEMORY}")
    except OSError as error:
        others = read(f"{place.root}/cgroup.procs").decode().split()
        said = f"; processes {', '.join(others)} are in it, and would have to be elsewhere" if others else ""
        return Groups(runs), f"{place.root}: no memory controller for runs: {error.strerror}{said}. {_WATCHED}"
    return Groups(runs, memory=True, limits=limits), ""


def _move_inside(root: str) -> None:
    """Move all processes in the root: the agent, and perhaps what started it and what it has started."""
    inside = f"{root}/{AGENT}"
    Path(inside).mkdir(exist_ok=True)
    write(f"{inside}/cgroup.procs", "0")
    for pid in read(f"{root}/cgroup.procs").split():
        with suppress(OSError):  # gone, or not to be moved
            write(f"{inside}/cgroup.procs", pid.decode())


def _may_make(group: str, systemd: str) -> bool:
    """Whether groups can be made here without interfering with systemd."""
    files = (group, f"{group}/cgroup.procs", f"{group}/cgroup.subtree_control")
    if not all(os.access(file, os.W_OK) for file in files):
        return False
    # Root may write everywhere, and a user in all that is their own systemd's. Each systemd marks what it has delegated.
    anyway = os.geteuid() == 0 or "/user@" in group
    return not anyway or not os.path.exists(systemd) or _is_delegated(group)  # noqa: PTH110


def _is_delegated(group: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False
