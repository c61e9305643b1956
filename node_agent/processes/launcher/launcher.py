"""The launcher: a small program that starts jobs, collects their exit status, and outlives the agent.

Only its parent gets a process's exit status. If the agent were the parent, its crash would lose them. So the parent is this
program, which does so little that it can keep running while agents come and go. It is executed by its path, as
`python -I -S launcher.py`, and imports next to nothing: the process is small, so starting a job costs about a millisecond.

One agent at a time talks to it over a Unix socket, one JSON object per line:

    spawn {key, argv, env, cwd, dir, cpus, group, join, restore}
                                                        ->  spawned {key, pid, start, child, program, restored} | lost {key}
                                                            | failed {key, error}   the command or its folder is at fault
                                                            | unable {key, error}   this node is; nothing was launched
    find {key, dir}      the same, without starting it   -> ... | absent {key}
    quit {}              kill every run, and exit        -> exited ..., end of stream
                         on connecting                   -> hello {pid, runs: {key: [pid, start]}}
                         when a run has ended            -> exited {key, code, signal}

It makes a run's directory (`dir`), and keeps two files there. `process.json` is created empty before the process and filled
after it, which makes `spawn` idempotent even if the launcher dies. `exit.json` appears, complete, when the run has ended, so
that an agent that was away finds it there. It is a second name of the first file, with the end added, since a new file can cost
more than the rest of a launch. For the same reason the next run's directory and files are made in advance, when the launcher is
idle. A started command first has the CPU to itself for a moment: that it runs is recorded and reported after that, or when
there is other work. `child` is false for a run that this launcher has not started, or that has ended. `program` is the file
that was executed, found by the job's PATH. If one of the files cannot be written, as on a full disk, the launcher continues: it
still answers for what it has launched; an end that it could not write it keeps, reports to every agent that connects, and
writes later.

If a run is to be restored from a dump, `restore` has the command of CRIU, the root of the dumped tree and the limit in seconds.
The run is then reported as `spawned` once CRIU has ended. `restored` says whether its process is the one that was dumped; if
not, it is the command, executed from scratch. Meanwhile `process.json` says what is being restored: the next launcher ends it.

A run is a session and a process group of its own, and is in the control group `group` from its first instruction, if the agent
has made one ("" otherwise). A checkpoint command of a run begins in the control group of the run, `join`, and its end
does not end the run. A run has ended when its leader has exited and the rest of its groups, which is then killed, is gone. The
control group is left to the agent, which reads from it how the run ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback

if __name__ == "__main__":  # executed by its path, and isolated, it finds only the standard library
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))  # noqa: PTH100, PTH118, PTH120

from node_agent.processes import job_files
from node_agent.processes.launcher.cgroup_spawn import IGNORED
from node_agent.processes.launcher.children import AGAIN, Children, Run, adopt_orphans, complain, start_of
from node_agent.processes.launcher.connection import Connection
from node_agent.processes.launcher.prepared_folders import PreparedFolder, remove
from node_agent.processes.launcher.process_file import close, open_mark, read_process
from node_agent.processes.launcher.restoring import Restores, abandon
from node_agent.processes.launcher.spawn import LOG_FILE, PROCESS_FILE, describe, fault_in_request, spawn_found, write_json
from node_agent.processes.process_groups import SCARCE, find_leader, start_ticks

_QUIET = 0.02
"""Seconds without anything to do after which the next directory is made."""
_HEAD_START = 0.002
"""Seconds that a command has to itself, most likely on the core that this program would use, before it is recorded and reported
as running. Other work comes after that, and does not wait for it."""
_MOST_BEGUN = 16
"""Maximum of runs that are not reported yet; each holds a file open."""
_PREPARED = "spare-"
_PROCESS_LIMIT = 1 << 16
"""Bytes of a process file."""
_FILES = (PROCESS_FILE, LOG_FILE)


class Launcher:
    """The whole program: one selector loop over the agent's connection, the end of children, and nothing else."""

    def __init__(self, listener: socket.socket, idle_limit: float) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = listener
        self.idle_limit = idle_limit
        self.agent = Connection(self.selector, self.attempt)
        self.send = self.agent.send
        self.children = Children(self.selector, self.tell_end)
        self.restores = Restores(self.children, self.begin_anew, self.tell_restored, lambda: self.quitting)
        self.children.restores = self.restores
        self.begun: list[tuple[Run, int]] = []
        """Runs that are not reported yet, each with the open file in which to record it."""
        self.quitting = False
        self.all_cpus = os.sched_getaffinity(0)
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.prepared = PreparedFolder(f"{os.getcwd()}/{_PREPARED}{os.getpid()}", _FILES)  # noqa: PTH109
        self.wants_spare = True
        for name in os.listdir("."):  # noqa: PTH208
            if name.startswith(_PREPARED):  # of a launcher that was killed; one that still lives can do without it
                remove(name, _FILES)
        self.nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.set_inheritable(listener.fileno(), False)  # jobs inherit nothing that is not given to them
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, self.accept)

    def serve(self) -> None:
        """Work until told to quit, or until it has had neither run nor agent for `idle_limit` seconds."""
        idle_since = time.monotonic()
        children = self.children
        while not (self.quitting and all(run.over for run in children.runs.values())):
            busy = bool(children.runs) or self.agent.is_connected
            if busy:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= self.idle_limit:
                break
            soon = children.unsettled or self.restores.runs
            wait = _QUIET if self.wants_spare else AGAIN if soon else None if busy else self.idle_limit
            events = self.selector.select(_HEAD_START if self.begun else wait)
            if not events and self.begun:
                self.tell_begun()
            elif not events and self.wants_spare:
                self.wants_spare = False
                self.prepared.make()
            for ready, _ in events:
                try:
                    self.tell_begun()
                    ready.data()
                except Exception:  # its death would cost the exit status of every run
                    complain(traceback.format_exc())
                    time.sleep(AGAIN)
            children.retry()
            self.restores.limit()
        self.prepared.remove()

    # The agent.

    def accept(self) -> None:
        try:
            connection = self.listener.accept()[0]
        except OSError as error:
            if error.errno in SCARCE:
                time.sleep(AGAIN)  # the selector reports it again immediately
            return
        self.agent.read()  # the agent before this one may have died waiting for these requests
        self.tell_begun()
        self.agent.exchange(connection)
        runs = {run.key: [run.pid, run.start] for run in self.children.runs.values()}
        self.send({"event": "hello", "pid": os.getpid(), "runs": runs})
        for run in self.children.runs.values():
            if run.over:
                self.tell_end(run)

    def attempt(self, request: dict[str, object]) -> None:
        """Obey the request; report whatever the disk or the kernel refuses."""
        try:
            self.obey(request)
        except OSError as error:
            self.send({"event": "unable", "key": request["key"], "error": describe(error)})

    def obey(self, request: dict[str, object]) -> None:
        if request["op"] == "quit":
            self.quitting = True
            self.children.kill()
        elif run := self.children.runs.get(str(request["key"])):
            self.tell_begun()
            if run not in self.restores.runs:
                self.tell_spawned(run)
            if run.over:
                self.tell_end(run)
        elif request["op"] == "spawn":
            self.spawn(request)
        else:
            self.find(request)

    # Starting.

    def find(self, request: dict[str, object]) -> None:
        """Answer for a run that is not this launcher's, or has ended, from the files in its directory."""
        key, directory = str(request["key"]), str(request["dir"])
        content = job_files.read_file(directory, PROCESS_FILE, _PROCESS_LIMIT)
        if content.data is None and not content.why:
            self.send({"event": "absent", "key": key})
            return
        if content.why:
            complain(f"run {key}: {content.why}")
        try:
            known = read_process(content.data or b"")
        except ValueError:
            # The launcher before this one died between creating the file and filling it: was the process made?
            pid = find_leader(directory)
            known = {"pid": pid, "start": start_ticks(pid)} if pid else {}
        if "restoring" in known:
            if not abandon(known, directory):
                self.send({"event": "unable", "key": key, "error": "a restore that was broken off cannot be ended"})
                return
            os.unlink(f"{directory}/{PROCESS_FILE}")  # noqa: PTH108
            if request["op"] == "spawn":
                self.spawn(request)
            else:
                self.send({"event": "absent", "key": key})
        elif "pid" in known:
            program = known.get("program", "")
            told = {"event": "spawned", "key": key, "pid": known["pid"], "start": known["start"], "child": False}
            self.send({**told, "program": program, "restored": known.get("restored")})
        elif "error" in known:
            self.send({"event": "failed", "key": key, "error": known["error"]})
        else:
            self.send({"event": "lost", "key": key})

    def spawn(self, request: dict[str, object]) -> None:
        directory = str(request["dir"])
        taken = self.prepared.move_to(directory)
        self.wants_spare = True
        if taken is not None:
            mark, log = taken
        else:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103
            try:
                mark, log = job_files.create_file(directory, PROCESS_FILE), -1
            except FileExistsError:  # it was launched before
                self.find(request)
                return
        self.begin(request, mark, log)

    def begin(self, request: dict[str, object], mark: int, log: int, restored: bool | None = None) -> None:
        """Start what is requested. `mark`: the open process file, which is closed; `log` as in `execute`."""
        key, directory = str(request["key"]), str(request["dir"])
        restore: dict[str, object] | None = request.get("restore") if restored is None else None  # type: ignore[assignment]
        if restore is not None:
            close(mark)  # which may be open to append
            if not self.restores.is_ready(directory, restore):
                restore, restored = None, False
            mark = open_mark(directory)
        try:
            pid, program = self.execute(request, log, restore)
        except (OSError, ValueError) as error:
            if restore is not None:  # the command does not need CRIU
                self.begin(request, mark, -1, restored=False)
                return
            text = fault_in_request(error, request)
            if not text or not write_json(mark, {"error": text}):
                with contextlib.suppress(OSError):
                    os.unlink(f"{directory}/{PROCESS_FILE}")  # noqa: PTH108 (so that it can be tried again)
            kind, text = ("failed", text) if text else ("unable", describe(error))
            self.send({"event": kind, "key": key, "error": text})
        else:
            # It runs: that is the answer, whatever fails from here on.
            run = Run(key, pid, directory, str(request["group"]), program)
            run.restored = restored
            self.children.add(run)
            if restore is not None:
                self.restores.track_criu(run, request, restore)
            else:
                self.begun.append((run, mark))
                mark = -1
            if len(self.begun) >= _MOST_BEGUN:
                self.tell_begun()
        close(mark)

    def begin_anew(self, request: dict[str, object], mark: int) -> None:
        """Execute the command of a run that CRIU has not restored."""
        self.begin(request, mark, -1, restored=False)
        self.tell_begun()  # its end may be collected immediately

    def tell_restored(self, run: Run, mark: int) -> None:
        self.begun.append((run, mark))
        self.tell_begun()

    def tell_begun(self) -> None:
        """Record and report begun runs, before anything else about them."""
        begun, self.begun = self.begun, []
        for run, mark in begun:
            run.start = start_of(run.pid)
            about = {"pid": run.pid, "start": run.start, "boot": self.children.boot, "program": run.program}
            write_json(mark, about if run.restored is None else {**about, "restored": run.restored})
            close(mark)
            self.tell_spawned(run)

    def tell_spawned(self, run: Run) -> None:
        about = {"key": run.key, "pid": run.pid, "start": run.start, "child": True, "program": run.program}
        self.send({"event": "spawned", **about, "restored": run.restored})

    def execute(self, request: dict[str, object], log: int, restore: dict[str, object] | None = None) -> tuple[int, str]:
        """Start the command, or CRIU to `restore` it; return its pid and the file that was executed. `log`: its open log,
        which is closed, or -1."""
        cpus: list[int] = request["cpus"]  # type: ignore[assignment]
        if log < 0:
            log = job_files.open_to_append(str(request["dir"]), LOG_FILE)
        try:
            group = str(request["group"] or request.get("join", ""))
            if cpus:
                os.sched_setaffinity(0, cpus)
            if restore is not None:
                streams = [(os.POSIX_SPAWN_DUP2, self.nothing, 0), (os.POSIX_SPAWN_DUP2, log, 1)]
                return spawn_found(restore["argv"], restore["env"], streams, group)  # type: ignore[arg-type]
            os.chdir(str(request["cwd"]))  # before the command is searched, which may be relative to it
            streams = [(os.POSIX_SPAWN_DUP2, self.nothing, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
            pid, path = spawn_found(request["argv"], request["env"], streams, group)  # type: ignore[arg-type]
            return pid, os.path.join(str(request["cwd"]), path.removeprefix("./"))  # noqa: PTH118
        finally:
            os.fchdir(self.home)
            os.close(log)
            if cpus:
                os.sched_setaffinity(0, self.all_cpus)

    def tell_end(self, run: Run) -> None:
        self.send({"event": "exited", "key": run.key, "code": run.code, "signal": run.signal})


def main(descriptor: int, idle_limit: float) -> None:
    for number in signal.valid_signals():
        # Jobs would inherit signals that the agent's parent ignores. A Python handler is not inherited, an ignore is.
        if number not in (*IGNORED, signal.SIGKILL, signal.SIGSTOP):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    adopt_orphans()
    Launcher(socket.socket(fileno=descriptor), idle_limit).serve()


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the agent waits for this process, and not for the other, which it does not parent
    os.setsid()
    main(int(sys.argv[1]), float(sys.argv[2]))
