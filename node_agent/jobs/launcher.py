"""The launcher: a small program that starts jobs, collects their exit status, and outlives the agent.

A process's exit status goes to its parent alone. Were the agent the parent, its crash would lose them; so the parent is
this program, which does little enough to be left running while agents come and go. It is executed by its path, as
`python -I -S launcher.py`, and imports next to nothing: spawning costs about a millisecond, for the process is small.

One agent at a time talks to it over a unix socket, a JSON object a line:

    spawn {key, argv, env, cwd, dir, log, cpus}    ->  spawned {key, pid, start, child} | lost {key}
                                                       | failed {key, error}   the command or its folder is at fault
                                                       | unable {key, error}   this node is; nothing was launched
    find {key, dir}      the same, without starting it   -> ... | absent {key}
    quit {}              kill every run, and exit        -> exited ..., end of stream
                         on connecting                   -> hello {pid, runs: {key: [pid, start]}}
                         when a run is over              -> exited {key, code, signal}

In a run's directory (`dir`) it keeps two files. `process.json` is created empty before the process and filled after it:
that makes `spawn` idempotent even over the launcher's own death. `exit.json` appears, complete, when the run is over: an
agent that was away finds it there. It is a second name of the first, which has the end added, since a new file can cost
more than all else of a launch. `child` is false for a run that this launcher has not started, or that is over.
Where one of them cannot be written, as on a full disk, the launcher goes on: what it has launched it answers for, and an
end that it could not write down it keeps, tells every agent that connects, and writes down when it can.

A run is a session and a process group of its own. It is over when its leader has exited and the rest of the group,
which is killed then, is gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback

PROCESS_FILE = "process.json"
EXIT_FILE = "exit.json"

_CHUNK = 1 << 18
_STAT_LENGTH = 4096
"""More than /proc/<pid>/stat has: some fifty numbers and a short name."""
_AGAIN = 0.5
"""Seconds until what could not be done for want of something is tried again."""

_IGNORED = [signal.SIGPIPE, signal.SIGXFSZ]
"""What this program ignores, and jobs are not to."""
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_NODES_FAULT = _SCARCE | {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT, errno.EFBIG}


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on (state, ppid, pgrp, session, ...); empty when it is gone.

    Raises OSError where the want of a descriptor or of memory keeps it from being known.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, _STAT_LENGTH)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _SCARCE:
            raise
        return []
    return text.rpartition(b")")[2].decode("ascii", "replace").split()


def start_ticks(pid: int) -> int:
    """When the process started, in clock ticks since boot; 0 when there is none. Tells it from a later owner of its pid."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def boot_id() -> str:
    """Of the kernel: pids and start times of another boot mean nothing."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return file.read().strip()


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def group_members(group: int) -> list[int]:
    """The processes of a group that still run; those that only wait to be collected do not count."""
    members = []
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 2 and fields[2] == str(group) and fields[0] not in "ZX":
            members.append(pid)
    return members


def kill_group(group: int, signum: int = signal.SIGKILL) -> bool:
    """Signals a process group; whether there is (still) one."""
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # one that changed its user; the others were signalled
    return True


def find_leader(directory: str) -> int:
    """The leader of the run with this directory, searched among all processes; 0 when there is none."""
    needle = os.fsencode(f"\0EBB_RUN_DIR={directory}\0")
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 3 and fields[2] == fields[3] == str(pid):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                if needle in b"\0" + file.read() + b"\0":
                    return pid
    return 0


class Run:
    """A run that this launcher started and that is not over."""

    __slots__ = ("code", "directory", "key", "over", "pid", "signal", "start", "watched")

    def __init__(self, key: str, pid: int, start: int, directory: str) -> None:
        self.key, self.pid, self.start, self.directory = key, pid, start, directory
        self.code = self.signal = 0
        self.watched = 0
        """Remaining members of the group that are being waited for."""
        self.over = False
        """Nothing of it is left, and its exit file is still to be written."""


class Launcher:
    """The whole program: one selector loop over the agent's connection, the end of children, and nothing else."""

    def __init__(self, listener: socket.socket, idle_limit: float) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = listener
        self.idle_limit = idle_limit
        self.agent: socket.socket | None = None
        self.buffer = bytearray()
        self.runs: dict[str, Run] = {}
        self.by_pid: dict[int, Run] = {}
        self.unsettled: list[Run] = []
        """Those for which something could not be done and is tried again."""
        self.again_at = 0.0
        self.quitting = False
        self.boot = boot_id()
        self.all_cpus = os.sched_getaffinity(0)
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.set_inheritable(listener.fileno(), False)  # jobs inherit nothing that is not given to them
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        self.wakeup, wakeup = socket.socketpair()
        self.wakeup.setblocking(False)
        wakeup.setblocking(False)
        self._keep = wakeup
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.wakeup, selectors.EVENT_READ, self.children)

    def serve(self) -> None:
        """Works until it was told to quit, or has had neither run nor agent for `idle_limit` seconds."""
        idle_since = time.monotonic()
        while True:
            if self.quitting and all(run.over for run in self.runs.values()):
                return
            busy = bool(self.runs) or self.agent is not None
            if busy:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= self.idle_limit:
                return
            for ready, _ in self.selector.select(_AGAIN if self.unsettled else None if busy else self.idle_limit):
                try:
                    ready.data()
                except Exception:  # its death would cost the exit status of every run
                    complain(traceback.format_exc())
                    time.sleep(_AGAIN)
            if self.unsettled and time.monotonic() >= self.again_at:
                self.again_at = time.monotonic() + _AGAIN
                runs, self.unsettled = self.unsettled, []
                for run in runs:
                    self.keep(run) if run.over else self.settle(run)

    # The agent.

    def accept(self) -> None:
        try:
            connection = self.listener.accept()[0]
        except OSError as error:
            if error.errno in _SCARCE:
                time.sleep(_AGAIN)  # it is going to be asked again at once
            return
        self.read()  # what the agent before this one asked for, it may have died waiting for
        self.disconnect()
        connection.setblocking(False)
        self.agent = connection
        self.selector.register(connection, selectors.EVENT_READ, self.read)
        runs = {run.key: [run.pid, run.start] for run in self.runs.values()}
        self.send({"event": "hello", "pid": os.getpid(), "runs": runs})
        for run in self.runs.values():
            if run.over:
                self.tell_end(run)

    def disconnect(self) -> None:
        if self.agent is not None:
            self.selector.unregister(self.agent)
            self.agent.close()
            self.agent = None
            self.buffer.clear()

    def send(self, message: dict[str, object]) -> None:
        if self.agent is None:
            return
        data = json.dumps(message).encode() + b"\n"
        try:
            complete = self.agent.send(data) == len(data)
        except OSError:
            complete = False
        if not complete:
            self.disconnect()  # it hangs; when it comes back it asks for everything anew

    def read(self) -> None:
        connection = self.agent
        while connection is not None and self.agent is connection:
            try:
                data = connection.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.disconnect()
                return
            self.buffer += data
            *lines, rest = self.buffer.split(b"\n")
            self.buffer = bytearray(rest)
            for line in lines:
                self.attempt(json.loads(line))

    def attempt(self, request: dict[str, object]) -> None:
        """Obeys, and survives it: whatever the disk and the kernel refuse is told."""
        try:
            self.obey(request)
        except OSError as error:
            self.send({"event": "unable", "key": request["key"], "error": describe(error)})

    def obey(self, request: dict[str, object]) -> None:
        if request["op"] == "quit":
            self.quitting = True
            for run in self.runs.values():
                if not run.over:
                    kill_group(run.pid)
        elif not self.answer_known(request):
            if request["op"] == "spawn":
                self.spawn(request)
            else:
                self.send({"event": "absent", "key": request["key"]})

    # Starting.

    def answer_known(self, request: dict[str, object]) -> bool:
        """Answers for a run that was launched before, by this launcher or another."""
        key, directory = str(request["key"]), str(request["dir"])
        run = self.runs.get(key)
        if run is not None:
            self.send({"event": "spawned", "key": key, "pid": run.pid, "start": run.start, "child": True})
            if run.over:
                self.tell_end(run)
            return True
        try:
            with open(f"{directory}/{PROCESS_FILE}", encoding="utf-8") as file:  # noqa: PTH123
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            known = json.loads(text)
        except ValueError:
            # The launcher before this one died between creating the file and filling it: was the process made?
            pid = find_leader(directory)
            known = {"pid": pid, "start": start_ticks(pid)} if pid else {}
        if "pid" in known:
            self.send({"event": "spawned", "key": key, "pid": known["pid"], "start": known["start"], "child": False})
        elif "error" in known:
            self.send({"event": "failed", "key": key, "error": known["error"]})
        else:
            self.send({"event": "lost", "key": key})
        return True

    def spawn(self, request: dict[str, object]) -> None:
        key, directory = str(request["key"]), str(request["dir"])
        path = f"{directory}/{PROCESS_FILE}"
        mark = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            pid = self.execute(request)
        except (OSError, ValueError) as error:
            text = blame(error, request)
            if not text or not note(mark, {"error": text}):
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108 (so that it can be tried again)
            kind, text = ("failed", text) if text else ("unable", describe(error))
            self.send({"event": kind, "key": key, "error": text})
        else:
            # It runs. Whatever fails from here on, that is what is answered.
            run = Run(key, pid, start_of(pid), directory)
            self.runs[key] = self.by_pid[pid] = run
            note(mark, {"pid": pid, "start": run.start, "boot": self.boot})
            self.send({"event": "spawned", "key": key, "pid": pid, "start": run.start, "child": True})
        finally:
            with contextlib.suppress(OSError):
                os.close(mark)

    def execute(self, request: dict[str, object]) -> int:
        cpus: list[int] = request["cpus"]  # type: ignore[assignment]
        log = os.open(str(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            if cpus:
                os.sched_setaffinity(0, cpus)
            os.chdir(str(request["cwd"]))  # before the command is looked for, which may be named relative to it
            streams = [(os.POSIX_SPAWN_DUP2, self.nothing, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
            return spawn_found(request["argv"], request["env"], streams)  # type: ignore[arg-type]
        finally:
            os.fchdir(self.home)
            os.close(log)
            if cpus:
                os.sched_setaffinity(0, self.all_cpus)

    # Ending.

    def children(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.wakeup.recv(4096):
                pass
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # Not collected yet, it keeps its number, so this cannot hit a stranger's group.
            kill_group(ended.si_pid)
            os.waitpid(ended.si_pid, 0)
            run = self.by_pid.pop(ended.si_pid, None)
            if run is not None:
                if ended.si_code == os.CLD_EXITED:
                    run.code = ended.si_status
                else:
                    run.signal = ended.si_status
                self.settle(run)

    def settle(self, run: Run) -> None:
        """The leader is gone. The run is over as soon as nothing of its group is left."""
        try:
            if kill_group(run.pid):
                for pid in group_members(run.pid):
                    with contextlib.suppress(ProcessLookupError):
                        descriptor = os.pidfd_open(pid)
                        run.watched += 1
                        self.selector.register(descriptor, selectors.EVENT_READ, lambda d=descriptor: self.member_ended(run, d))
        except OSError:  # no descriptor is left; the end of a member that is watched leads here again
            if run.watched == 0:
                self.unsettled.append(run)
            return
        if run.watched == 0:
            self.finish(run)

    def member_ended(self, run: Run, descriptor: int) -> None:
        self.selector.unregister(descriptor)
        os.close(descriptor)
        run.watched -= 1
        if run.watched == 0:
            self.settle(run)

    def finish(self, run: Run) -> None:
        run.over = True
        self.keep(run)
        self.tell_end(run)
        if run.key in self.runs:
            complain(f"{run.directory}/{EXIT_FILE} cannot be written; kept in memory until it can")

    def keep(self, run: Run) -> None:
        """Leaves the exit status where it outlives this program, now or later."""
        if write_exit(run, self.boot):
            del self.runs[run.key]
        else:
            self.unsettled.append(run)

    def tell_end(self, run: Run) -> None:
        self.send({"event": "exited", "key": run.key, "code": run.code, "signal": run.signal})


def start_of(pid: int) -> int:
    """The start time of a child that is not collected yet. It is there; where the kernel cannot say, it is asked again."""
    while True:
        try:
            return start_ticks(pid)
        except OSError:
            time.sleep(_AGAIN)


def spawn_found(argv: list[str], environment: dict[str, str], streams: list[tuple[int, int, int]]) -> int:
    """Spawns the command, which is looked for as execvpe would, in a session of its own; its pid.

    Costs half of what the subprocess module does. Raises OSError with the command for its file name.
    """
    command, number = argv[0], 0
    found = [command]
    if "/" not in command:
        found = [f"{folder or '.'}/{command}" for folder in environment.get("PATH", os.defpath).split(":")]
    for path in found:
        try:
            if len(found) > 1:
                os.stat(path)  # noqa: PTH116 (pathlib is not loaded here; a spawn that fails costs much more)
            return os.posix_spawn(path, argv, environment, file_actions=streams, setsid=True, setsigdef=_IGNORED)
        except OSError as error:
            if number in (0, errno.ENOENT, errno.ENOTDIR):  # any other says more
                number = error.errno or errno.EIO
    raise OSError(number, os.strerror(number), command)


def note(descriptor: int, content: dict[str, object]) -> bool:
    """Writes it in place of what the file holds, or says that it could not."""
    data = json.dumps(content).encode()
    try:
        if os.write(descriptor, data) != len(data):
            return False
        if os.fstat(descriptor).st_size > len(data):
            os.ftruncate(descriptor, len(data))
        return True
    except OSError:
        return False


def write_exit(run: Run, boot: str) -> bool:
    """Leaves the exit file, whole or not at all; False where that is to be tried again."""
    process, path = f"{run.directory}/{PROCESS_FILE}", f"{run.directory}/{EXIT_FILE}"
    content = {"pid": run.pid, "start": run.start, "boot": boot, "code": run.code, "signal": run.signal}
    with contextlib.suppress(OSError):  # where the job has done away with one or made the other, it is a new file
        mark = os.open(process, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if note(mark, content):
                os.link(process, path)
                return True
        finally:
            os.close(mark)
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(content, file)
        os.replace(path + ".new", path)  # noqa: PTH105
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR)  # the run's directory was removed: nobody is going to look
    return True


def blame(error: Exception, request: dict[str, object]) -> str:
    """Which part of the request could not be executed, and why; empty where that is this node's own fault.

    An error with a file name comes from the child: from entering its working directory, or from executing the command.
    """
    if not isinstance(error, OSError):
        return str(error)
    if error.filename is None or error.errno in _NODES_FAULT or error.filename in (request["log"], request["dir"]):
        return ""
    what = "working directory" if error.filename == request["cwd"] else "command"
    return f"{what} {error.filename}: {error.strerror}"


def describe(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{error.filename}: {reason}" if isinstance(error, OSError) and error.filename else str(reason)


def complain(text: str) -> None:
    """Into the launcher's log, if that can be written."""
    with contextlib.suppress(OSError):
        os.write(2, text.rstrip().encode(errors="backslashreplace") + b"\n")


def main(descriptor: int, idle_limit: float) -> None:
    for number in signal.valid_signals():
        # What the agent's parent chose to ignore, jobs would ignore too. A Python handler is not inherited, an ignore is.
        if number not in (*_IGNORED, signal.SIGKILL, signal.SIGSTOP):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    Launcher(socket.socket(fileno=descriptor), idle_limit).serve()


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the agent waits for this process, and not for the other, which is nobody's child
    os.setsid()
    main(int(sys.argv[1]), float(sys.argv[2]))
