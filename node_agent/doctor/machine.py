"""The machine under the agent: its kernel, user, control groups, limits, memory and clock."""

import ctypes
import errno
import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

from node_agent.doctor.findings import Finding, ok, problem, warning
from node_agent.processes import cgroups
from node_agent.processes import process_groups as processes

_FILES, _PROCESSES = 4096, 4096
_SHARED_MEMORY = 1 << 30
_SYSTEM_USERS = 1000
_UNSYNCHRONISED = 5


def kernel(release: str, pidfd_open: Callable[[int], int]) -> Iterator[Finding]:
    try:
        os.close(pidfd_open(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            do = "take a kernel from 5.3 on"
        else:
            do = "let it through: a container's seccomp profile may forbid it"
        yield problem(f"Linux {release} gives no descriptor of a process (pidfd_open: {error.strerror})", do)
    else:
        yield ok(f"Linux {release}, which gives descriptors of processes (pidfd_open)")


def user(uid: int, allow_root: bool, logind: bool) -> Iterator[Finding]:
    """`logind`: systemd manages the logins of users here."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"number {uid}"
    if uid == 0:
        if allow_root:
            yield warning(
                "the agent runs as root, as it is allowed to: so do all jobs", "give it a user of its own, and jobs too"
            )
        else:
            yield problem(
                "this is root, as which no agent starts, and all of this holds for root",
                "ask as the agent's user: runuser -u ebb-agent -- ebb-agent doctor --config /etc/ebb/agent.yaml",
            )
    elif uid >= _SYSTEM_USERS and logind:
        yield warning(
            f"the agent's user {name} ({uid}) is no system user: at its logout, logind removes its jobs' shared memory",
            "give the agent a system user (useradd --system), or set RemoveIPC=no in /etc/systemd/logind.conf",
        )
    else:
        yield ok(f"user {name} ({uid}), who owns all jobs, too")


def control_groups(membership: str, mountinfo: str, agent: int) -> Iterator[Finding]:
    """Check control groups by the texts of /proc/<agent>/cgroup and mountinfo. `agent`: the pid of a running agent, or 0."""
    own = cgroups.own_group(membership, mountinfo)
    place = cgroups.find_place(own, {})
    unit = "take the lines on control groups in deploy/systemd/ebb-agent.service"
    if not own and (agent or " - cgroup2 " not in mountinfo):
        yield warning(place.missing, "take a system with control groups v2: Debian 11, Ubuntu 22.04 or later, not in WSL")
    elif not agent:
        yield ok("control groups v2; which of them an agent has is seen once it runs")
    elif place.missing:
        yield warning(place.missing, unit)
    elif cgroups.MEMORY.encode() not in processes.read(f"{place.root}/{cgroups.RUNS}/cgroup.subtree_control").split():
        yield warning(
            f"{place.root} is the agent's, and the kernel does not hold runs to their memory: the agent looks, once a second",
            f"see its log; with systemd from 254 on, {unit}",
        )
    else:
        yield ok(f"{place.root} is the agent's, and the kernel holds runs to their memory")


def criu(wanted: bool, why_not: str) -> Iterator[Finding]:
    """Whether programs that do not save their work can be dumped. `why_not`: the reason, with its remedy; empty: they can."""
    if not wanted:
        yield ok("off: programs that do not save their work lose it when they are stopped")
    elif why_not:
        what, _, do = why_not.rpartition(": ")
        yield warning(f"{what or why_not}. Programs that do not save their work lose it when they are stopped", do)
    else:
        yield ok("CRIU can save programs of this machine that run on CPUs")


def limits(text: str, agent: int, rdma: bool) -> Iterator[Finding]:
    """Check /proc/<pid>/limits, of the agent if one runs. `rdma`: this machine has adapters that lock memory."""
    of = {line[:26].strip(): _soft_and_hard(line[26:]) for line in text.splitlines()[1:]}
    files, tasks, pinned = (of[f"Max {what}"] for what in ("open files", "processes", "locked memory"))
    said = f"{files[0]:g} open files (at most {files[1]:g}), {tasks[0]:g} processes"
    if not agent:
        yield ok(f"no agent runs here; from this shell it would have {said}, and from its unit what that says")
        return
    few = []
    if files[0] < _FILES or tasks[0] < _PROCESSES:
        few.append(
            warning(
                f"the agent has {said}, and so has each job", "LimitNOFILE=65536:1048576 and LimitNPROC=infinity in its unit"
            )
        )
    if rdma and pinned[0] != float("inf"):
        few.append(
            warning(
                f"jobs may lock {pinned[0] / 1024:.0f} KiB of memory, and RDMA locks much", "LimitMEMLOCK=infinity in the unit"
            )
        )
    yield from few or [ok(f"the agent and its jobs have {said}")]


def shared_memory(path: Path) -> Iterator[Finding]:
    sizes = os.statvfs(path)
    size = sizes.f_blocks * sizes.f_frsize
    said = f"{path} has {size / (1 << 30):.1f} GiB"
    if not os.access(path, os.W_OK):
        yield problem(f"{path} cannot be written by this user", f"chmod 1777 {path}: torch's data loaders and NCCL need it")
    elif size < _SHARED_MEMORY:
        do = f"mount -o remount,size=50% {path}; in a container --shm-size (podman, docker)"
        yield warning(f"{said}: torch's data loaders and NCCL fail when it is full", do)
    else:
        yield ok(said)


def memory(meminfo: str, overcommit: str) -> Iterator[Finding]:
    """Check the texts of /proc/meminfo and /proc/sys/vm/overcommit_memory."""
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in meminfo.splitlines())}
    total, swap = sizes["MemTotal"] / (1 << 20), sizes["SwapTotal"] / (1 << 20)
    if overcommit.strip() == "2":
        yield warning(
            "the kernel refuses to overcommit memory (vm.overcommit_memory is 2), and CUDA reserves terabytes of addresses",
            "sysctl vm.overcommit_memory=0",
        )
    if swap:
        yield warning(
            f"{total:.1f} GiB of memory, {swap:.1f} GiB of swap: what is swapped out of a run does not count against its limit",
            "swapoff -a, unless jobs are meant to swap",
        )
    else:
        yield ok(f"{total:.1f} GiB of memory, no swap")


def clock(adjtimex: Callable[[], int]) -> Iterator[Finding]:
    """`adjtimex` answers as adjtimex(2). The scheduler's clock is not checked: orders carry durations, not times."""
    if adjtimex() == _UNSYNCHRONISED:
        yield warning(
            "nothing keeps the clock right: logs and stories will not agree, certificates and tokens seem to have expired",
            "run an NTP client: apt-get install chrony (in a container, its host must)",
        )
    else:
        yield ok("the clock is kept right (NTP)")


def adjtimex() -> int:
    """Return the kernel's state of its clock. Sets nothing. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    state: int = libc.adjtimex(ctypes.create_string_buffer(512))  # more than struct timex, with nothing to set
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return state


def _soft_and_hard(text: str) -> tuple[float, float]:
    soft, hard, *_ = (float("inf") if word == "unlimited" else float(word) for word in text.split()[:2])
    return soft, hard
