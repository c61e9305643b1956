"""NVIDIA's MPS: one control daemon for each GPU and user, through which the runs of that user share the GPU (ADR 44).

A daemon serves one user, because a fault of one client ends all others on the GPU. It outlives the agent, as its clients do.
What the agent knows of the daemons is in their folders, `<root>/<uid>-<uuid of the GPU>`, so a restarted agent finds them.
"""

import asyncio
import os
import pwd
import shutil
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from node_agent.processes.command_with_timeout import run_limited
from node_agent.processes.process_groups import read

CONTROL = "nvidia-cuda-mps-control"
LIMIT = 30.0
"""Seconds within which the control program must answer, and the daemon exit."""
_LONGEST_PATH = 100
"""Characters of the pipe folder: the path of a socket in it has at most 107."""
_PID_FILE = f"{CONTROL}.pid"


class Server(NamedTuple):
    """The identity of a daemon: its user and its GPU."""

    uid: int
    gpu: str
    """The UUID of the GPU, as NVML writes it."""


class MpsDaemons:
    """The daemons of this node. Runs of one user that share a GPU have one."""

    def __init__(self, root: Path, control: str = CONTROL) -> None:
        """`root` is a folder of the agent that users can pass through."""
        self._root = root
        self._control = control
        self._turn = asyncio.Lock()

    def environment(
        self, server: Server, *, thread_percentage: float | None = None, memory_limit_mib: int | None = None
    ) -> Mapping[str, str]:
        """Return the environment of a client; none of it can be changed after the client has started.

        `thread_percentage` is the part of the GPU's multiprocessors that the client may use, and `memory_limit_mib` the device
        memory that it may allocate. Raises ValueError for a percentage or a limit that MPS does not accept.
        """
        given = {**self._folders(server), "CUDA_VISIBLE_DEVICES": server.gpu}
        if thread_percentage is not None:
            if not 0 < thread_percentage <= 100:
                raise ValueError(f"the thread percentage must be above 0 and at most 100, and is {thread_percentage:g}")
            given["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{thread_percentage:g}"
        if memory_limit_mib is not None:
            if memory_limit_mib < 1:
                raise ValueError(f"the memory limit must be at least 1 MiB, and is {memory_limit_mib}")
            given["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_limit_mib}M"  # the client sees one device
        return given

    async def keep(self, wanted: Collection[Server]) -> Mapping[Server, str]:
        """Start the wanted daemons that do not answer, and stop the others. Return why, for each that failed."""
        failed = {}
        async with self._turn:
            for server in sorted({*wanted, *self.find_started()}):
                why = await (self.start(server) if server in wanted else self.stop(server))
                if why:
                    failed[server] = why
        return failed

    def find_started(self) -> list[Server]:
        """Return the daemons that have been started and not been stopped since, also by an earlier agent."""
        found = []
        for folder in self._root.iterdir() if self._root.exists() else ():
            uid, _, gpu = folder.name.partition("-")
            if uid.isdigit() and gpu:
                found.append(Server(int(uid), gpu))
        return sorted(found)

    async def start(self, server: Server) -> str:
        """Ensure that a daemon answers; return why none can. Clients must not start before."""
        if not await self.unhealthy(server):
            return ""
        if why := await self.stop(server):  # what is left of a daemon that has died
            return why
        if why := self._make_folders(server):
            return why
        environment = {**self._folders(server), "CUDA_VISIBLE_DEVICES": server.gpu}
        ended = await run_limited([self._control, "-d"], LIMIT, environment=environment, uid=server.uid, gid=_group(server.uid))
        if ended.status != 0:
            return f"the MPS daemon of user {server.uid} on {server.gpu} cannot be started: {ended.output or ended.status}"
        return await self.unhealthy(server)

    async def unhealthy(self, server: Server) -> str:
        """Return why no daemon answers; empty if one does."""
        return await self._tell(server, "get_server_list")

    async def stop(self, server: Server) -> str:
        """End the daemon and its clients, and remove its folder; return why that is not possible. A daemon that is not there
        counts as ended."""
        folder = self._folder(server)
        if not folder.exists():
            return ""
        pid = self._pid(server)
        if pid is not None:
            await self._tell(server, "quit -t 1")
            if not await _has_exited(pid, LIMIT / 2):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                if not await _has_exited(pid, LIMIT / 2):
                    return f"the MPS daemon of user {server.uid} on {server.gpu}, process {pid}, does not exit"
        try:
            await asyncio.to_thread(shutil.rmtree, folder)
        except OSError as error:
            return f"{folder} cannot be removed: {error}"
        return ""

    async def _tell(self, server: Server, command: str) -> str:
        """Send the daemon a command; return why it did not obey."""
        if self._pid(server) is None:
            return f"no MPS daemon of user {server.uid} runs on {server.gpu}"
        ended = await run_limited(
            [self._control],
            LIMIT,
            given=f"{command}\n",
            environment=self._folders(server),
            uid=server.uid,
            gid=_group(server.uid),
        )
        if ended.status == 0:
            return ""
        return f"the MPS daemon of user {server.uid} on {server.gpu} does not answer: {ended.output or ended.status}"

    def _pid(self, server: Server) -> int | None:
        """Return the daemon's pid; None if none runs. Another process may have taken the pid in the file: check its name."""
        with suppress(OSError, ValueError):
            pid = int((self._folder(server) / "pipe" / _PID_FILE).read_text())
            if Path(self._control).name.encode() in read(f"/proc/{pid}/cmdline"):
                return pid
        return None

    def _make_folders(self, server: Server) -> str:
        pipe, log = self._folders(server).values()
        if len(pipe) > _LONGEST_PATH:
            return f"{pipe} is too long for a socket: the agent's state directory must have a shorter path"
        if (group := _group(server.uid)) is None:
            return f"this machine does not know user {server.uid}"
        try:
            for folder in (self._folder(server), Path(pipe), Path(log)):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if server.uid != os.geteuid():
                    os.chown(folder, server.uid, group)
        except OSError as error:
            return f"the folders of an MPS daemon cannot be made: {error}"
        return ""

    def _folder(self, server: Server) -> Path:
        return self._root / f"{server.uid}-{server.gpu}"

    def _folders(self, server: Server) -> dict[str, str]:
        folder = self._folder(server)
        return {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}


def _group(uid: int) -> int | None:
    """Return the group of a user; None for one that the machine does not know."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return None


async def _has_exited(pid: int, limit_seconds: float) -> bool:
    """Wait for a process that is not the agent's child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(descriptor, exited.set)
    try:
        async with asyncio.timeout(limit_seconds):
            await exited.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
