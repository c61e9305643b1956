"""The agent's client for the launcher: starts one if needed, keeps a connection to it, and exchanges typed events.

Nothing here waits for an answer. A request that is lost with the connection is found again in the spool, and repeated
when `Connected` says that a launcher is there.
"""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from node_agent.errors import LauncherFailed
from node_agent.processes.launcher import launcher
from node_agent.processes.launcher.events import Absent as Absent
from node_agent.processes.launcher.events import Beside as Beside
from node_agent.processes.launcher.events import Connected as Connected
from node_agent.processes.launcher.events import Ended as Ended
from node_agent.processes.launcher.events import Event as Event
from node_agent.processes.launcher.events import Lost as Lost
from node_agent.processes.launcher.events import NotSpawned as NotSpawned
from node_agent.processes.launcher.events import Outcome as Outcome
from node_agent.processes.launcher.events import Restore as Restore
from node_agent.processes.launcher.events import Spawned as Spawned
from node_agent.processes.launcher.events import SpawnRequest as SpawnRequest
from node_agent.processes.launcher.events import Unable as Unable
from node_agent.processes.launcher.events import event_of
from node_agent.processes.process_groups import start_ticks
from node_agent.processes.process_watch import GroupWatch
from node_agent.run_state.model import Process, RunKey

log = logging.getLogger(__name__)

SOCKET = "launcher.sock"
LOG = "launcher.log"
_ANSWER_LIMIT = 10.0
_RETRY = 1.0
_CHUNK = 1 << 16
StrPath = str | os.PathLike[str]


_BESIDE = "+checkpoint"
"""Suffix of the name of a run in that of its checkpoint command."""


class LauncherClient:
    """A connection to the launcher of one state directory, made again whenever it breaks.

    The launcher outlives the spool that its runs are in. So it knows a run as <spool>/<name>, such as 1a2b/17.1 or 1a2b/17.1.2.
    """

    def __init__(self, state: Path, spool: str, listen: Callable[[list[Event]], None], idle_limit: float = 60.0) -> None:
        self._state = state
        self._spool = spool
        self._listen = listen
        self._idle_limit = idle_limit
        self._writer: asyncio.StreamWriter | None = None
        self._leaving = False
        self._connected = asyncio.Event()
        self._disconnected = asyncio.Event()
        self.pid = 0
        """The launcher's pid, while one is connected."""

    async def run(self) -> None:
        """Keep a launcher connected until cancelled, or told to quit."""
        while not self._leaving:
            try:
                reader, writer, hello = await self._open()
            except (OSError, ValueError, TimeoutError, LauncherFailed) as error:
                log.error("no launcher, so no job can start: %s; trying again", error or "it does not answer")
                await asyncio.sleep(_RETRY)
                continue
            try:
                self._writer = writer
                self._connected.set()
                log.info("launcher connected (pid %d)", self.pid)
                # What fails in here is not the launcher's fault, and is not handled as such.
                self._listen([hello])
                async for events in self._events(reader):
                    self._listen(events)
            finally:
                self._writer = None
                self.pid = 0
                self._connected.clear()
                self._disconnected.set()
                writer.close()

    def spawn(self, request: SpawnRequest) -> None:
        cpus = None if request.cpus is None else sorted(request.cpus)
        restore = request.restore
        self._send(
            op="spawn",
            key=f"{self._spool}/{request.key.name}{_BESIDE if request.beside else ''}",
            argv=request.command,
            env=dict(request.environment),
            cwd=str(request.working_directory),
            dir=str(request.run_directory),
            cpus=cpus,
            group="" if request.beside else request.group,
            join=request.group if request.beside else "",
            restore=restore
            and {
                "argv": restore.command,
                "env": dict(restore.environment),
                "root": restore.root,
                "limit": restore.limit,
            },
        )

    def find(self, key: RunKey, run_directory: StrPath, *, beside: bool = False) -> None:
        """Ask for the same answer as `spawn`, without launching anything."""
        self._send(op="find", key=f"{self._spool}/{key.name}{_BESIDE if beside else ''}", dir=str(run_directory))

    async def quit(self, limit: float = 5.0) -> None:
        """Make the launcher kill its runs and exit. It reports their ends first. If it is just starting, wait for it."""
        try:
            async with asyncio.timeout(limit):
                while not self.pid:
                    await self._connected.wait()
                self._leaving = True
                gone = asyncio.Event()
                watch = GroupWatch(self.pid, start_ticks(self.pid), gone.set)
                watch.begin()
                try:
                    self._send(op="quit")
                    await gone.wait()
                    await self._disconnected.wait()
                finally:
                    watch.close()
        except TimeoutError:
            log.error("no launcher has left within %g s (pid %d)", limit, self.pid)
        else:
            (self._state / SOCKET).unlink(missing_ok=True)

    def _send(self, **message: object) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Event]:
        reader, writer = await self._connect()
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                line = await reader.readline()
            if not line:
                raise LauncherFailed(why="it left at once", log=self._state / LOG)  # or it was exiting, idle for too long
            hello = self._event(line)
            if hello is None:
                raise ValueError("it did not say hello")
            self._disconnected.clear()
            self.pid = int(json.loads(line)["pid"])
        except BaseException:
            writer.close()
            raise
        return reader, writer, hello

    async def _events(self, reader: asyncio.StreamReader) -> AsyncIterator[list[Event]]:
        """Yield the launcher's events as they come, until the connection ends."""
        rest = b""
        try:
            while data := await reader.read(_CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                yield [event for event in map(self._event, lines) if event is not None]
        except ConnectionError as error:
            log.warning("launcher gone (pid %d): %s; jobs go on", self.pid, error)
        except ValueError as error:
            log.error("launcher (pid %d): %s; connecting again", self.pid, error)
            await asyncio.sleep(_RETRY)
        else:
            if not self._leaving:
                log.warning("launcher gone (pid %d); jobs go on", self.pid)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # Through the directory's descriptor: the path of a socket may have at most 107 bytes.
        directory = os.open(self._state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            path = f"/proc/self/fd/{directory}/{SOCKET}"
            try:
                return await asyncio.open_unix_connection(path, limit=1 << 24)
            except (ConnectionRefusedError, FileNotFoundError):
                self._start(path)
                return await asyncio.open_unix_connection(path, limit=1 << 24)
        finally:
            os.close(directory)

    def _start(self, path: str) -> None:
        """Start a launcher on a socket that already listens, so that connecting need not wait for it."""
        with socket.socket(socket.AF_UNIX) as listener:
            Path(path).unlink(missing_ok=True)
            listener.bind(path)
            listener.listen(8)
            with (self._state / LOG).open("ab") as output:
                try:
                    # Returns immediately: the program detaches itself, so that it is never a child of an agent.
                    subprocess.run(
                        [sys.executable, "-I", "-S", launcher.__file__, str(listener.fileno()), str(self._idle_limit)],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        cwd=self._state,
                        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                        pass_fds=[listener.fileno()],
                        check=True,
                    )
                except (OSError, subprocess.SubprocessError) as error:
                    raise LauncherFailed(why=error, log=self._state / LOG) from error

    def _event(self, line: bytes) -> Event | None:
        """Return the event; None for one of a run of another spool."""
        try:
            message = json.loads(line)
            if message["event"] == "hello":
                return self._hello(message["runs"])
            spool, _, name = message["key"].rpartition("/")
            if spool != self._spool:
                return None
            event = event_of(message, RunKey.parse(name.removesuffix(_BESIDE)))
            return Beside(event) if name.endswith(_BESIDE) else event
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it does not speak as it should ({error!r})") from error

    def _hello(self, runs: Mapping[str, Sequence[int]]) -> Connected:
        own, others = {}, {}
        for text, process in runs.items():
            spool, _, name = text.rpartition("/")
            if spool == self._spool and name.endswith(_BESIDE):
                continue  # it ends with its run
            if spool == self._spool:
                own[RunKey.parse(name)] = Process(*process)
            else:
                others[text] = Process(*process)
        return Connected(own, others)
