"""The launcher: a small program that starts jobs, collects their exit status, and outlives the agent.

A process's exit status goes to its parent alone. Were the agent the parent, its crash would lose them; so the parent is
this program, which does little enough to be left running while agents come and go. It is executed by its path, as
`python -I -S launcher.py`, and imports next to nothing: starting a job costs about a millisecond, for the process is small.

One agent at a time talks to it over a unix socket, a JSON object a line:

    spawn {key, argv, env, cwd, dir, cpus, group, join, restore}
                                                        ->  spawned {key, pid, start, child, program, restored} | lost {key}
                                                            | failed {key, error}   the command or its folder is at fault
                                                            | unable {key, error}   this node is; nothing was launched
    find {key, dir}      the same, without starting it   -> ... | absent {key}
    quit {}              kill every run, and exit        -> exited ..., end of stream
                         on connecting                   -> hello {pid, runs: {key: [pid, start]}}
                         when a run is over              -> exited {key, code, signal}

In a run's directory (`dir`), which it makes, it keeps two files.
`process.json` is created empty before the process and filled after it: that makes `spawn` idempotent even over the launcher's
own death. `exit.json` appears, complete, when the run is over: an agent that was away finds it there. It is a second name of
the first, which has the end added, since a new file can cost more than all else of a launch; and for that reason the next
run's directory is made in advance, with its files, as soon as there is nothing else to do. A command that was started has a
moment for itself: that it runs is written and told after that, or when something else is to be done. `child` is false for a
run that this launcher has not started, or that is over. `program` is the file that was executed, which was looked for by the
job's PATH. Where one of the files cannot be written, as on a full disk, the
launcher goes on: what it has launched it answers for, and an end that it could not write down it keeps, tells every agent that
connects, and writes down when it can.

Where a run is to be restored from a dump, `restore` has the command of CRIU, the root of the dumped tree and the limit in
seconds. Then the run is told as `spawned` once CRIU has ended, with `restored`: whether its process is the one that was dumped.
Else it is the command, executed anew. `process.json` says meanwhile what is being restored: the next launcher ends it.

A run is a session and a process group of its own, and is in the control group `group` from its first instruction, where
the agent has made one ("" otherwise). A command that runs beside a run begins in the control group of the run, `join`, and its
end is not the end of that. It is over when its leader has exited and the rest of these, which is killed then, is
gone. The control group is left to the agent, who reads from it what the run came to.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback

if __name__ == "__main__":  # by its path, and isolated, it finds the standard library alone
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))  # noqa: PTH100, PTH118, PTH120

from node_agent.processes.launcher.cgroup_spawn import IGNORED
from node_agent.processes.launcher.children import AGAIN, Children, Run, complain, start_of
from node_agent.processes.launcher.connection import Connection
from node_agent.processes.launcher.prepared_folders import PreparedFolder, remove
from node_agent.processes.launcher.process_file import close, open_mark
from node_agent.processes.launcher.restoring import Restores, abandon
from node_agent.processes.launcher.spawn import LOG_FILE, PROCESS_FILE, describe, fault_in_request, spawn_found, write_json
from node_agent.processes.process_groups import SCARCE, find_leader, start_ticks

_QUIET = 0.02
"""Seconds without anything to do after which the next directory is made."""
_HEAD_START = 0.002
"""Seconds that a command has to itself, most likely on the core that this program would take, before it is written down and
told that it runs. Whatever else is to be done comes after that, and does not wait for it."""
_MOST_BEGUN = 16
"""Runs that are not told of yet; each holds a file open."""
_PREPARED = "spare-"
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
        """Those of which nothing is told yet, each with the open file to write it down in."""
        self.quitting = False
        self.all_cpus = os.sched_getaffinity(0)
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.prepared = PreparedFolder(f"{os.getcwd()}/{_PREPARED}{os.getpid()}", _FILES)  # noqa: PTH109
        self.wants_spare = True
        for name in os.listdir("."):  # noqa: PTH208
            if name.startswith(_PREPARED):  # of a launcher that was killed; one that still lives can do without, too
                remove(name, _FILES)
        self.nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.set_inheritable(listener.fileno(), False)  # jobs inherit nothing that is not given to them
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, self.accept)

    def serve(self) -> None:
        """Works until it was told to quit, or has had neither run nor agent for `idle_limit` seconds."""
        idle_since = time.monotonic()
        children = self.children
        while not (self.quitting and all(run.over for run in children.runs.values())):
            busy = bool(children.runs) or self.agent.there
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
                time.sleep(AGAIN)  # it is going to be asked again at once
            return
        self.agent.read()  # what the agent before this one asked for, it may have died waiting for
        self.tell_begun()
        self.agent.exchange(connection)
        runs = {run.key: [run.pid, run.start] for run in self.children.runs.values()}
        self.send({"event": "hello", "pid": os.getpid(), "runs": runs})
        for run in self.children.runs.values():
            if run.over:
                self.tell_end(run)

    def attempt(self, request: dict[str, object]) -> None:
        """Obeys, and survives it: whatever the disk and the kernel refuse is told."""
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
        """Answers for a run that is not this launcher's, or is over, by what its directory holds."""
        key, directory = str(request["key"]), str(request["dir"])
        try:
            with open(f"{directory}/{PROCESS_FILE}", encoding="utf-8") as file:  # noqa: PTH123
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            self.send({"event": "absent", "key": key})
            return
        try:
            known = json.loads(text)
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
        path = f"{directory}/{PROCESS_FILE}"
        taken = self.prepared.take(directory)
        self.wants_spare = True
        if taken is not None:
            mark, log = taken
        else:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103
            try:
                mark, log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), -1
            except FileExistsError:  # it was launched before
                self.find(request)
                return
        self.begin(request, mark, log)

    def begin(self, request: dict[str, object], mark: int, log: int, restored: bool | None = None) -> None:
        """Starts what is requested. `mark`: the open process file, which is closed; `log` as in `execute`."""
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
            # It runs. Whatever fails from here on, that is what is answered.
            run = Run(key, pid, directory, str(request["group"]), program)
            run.restored = restored
            self.children.add(run)
            if restore is not None:
                self.restores.begun(run, request, restore)
            else:
                self.begun.append((run, mark))
                mark = -1
            if len(self.begun) >= _MOST_BEGUN:
                self.tell_begun()
        close(mark)

    def begin_anew(self, request: dict[str, object], mark: int) -> None:
        """CRIU has not restored a run."""
        self.begin(request, mark, -1, restored=False)
        self.tell_begun()  # its end may be collected at once

    def tell_restored(self, run: Run, mark: int) -> None:
        self.begun.append((run, mark))
        self.tell_begun()

    def tell_begun(self) -> None:
        """Before anything else that may be about those runs."""
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
        """Starts it, or CRIU to `restore` it; its pid, and the file that was executed. `log` is its open log, if not -1, and
        closed."""
        cpus: list[int] = request["cpus"]  # type: ignore[assignment]
        if log < 0:
            log = os.open(f"{request['dir']}/{LOG_FILE}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            group = str(request["group"] or request.get("join", ""))
            if cpus:
                os.sched_setaffinity(0, cpus)
            if restore is not None:
                streams = [(os.POSIX_SPAWN_DUP2, self.nothing, 0), (os.POSIX_SPAWN_DUP2, log, 1)]
                return spawn_found(restore["argv"], restore["env"], streams, group)  # type: ignore[arg-type]
            os.chdir(str(request["cwd"]))  # before the command is looked for, which may be named relative to it
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
        # What the agent's parent chose to ignore, jobs would ignore too. A Python handler is not inherited, an ignore is.
        if number not in (*IGNORED, signal.SIGKILL, signal.SIGSTOP):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    Launcher(socket.socket(fileno=descriptor), idle_limit).serve()


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the agent waits for this process, and not for the other, which is nobody's child
    os.setsid()
    main(int(sys.argv[1]), float(sys.argv[2]))
