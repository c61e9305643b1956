"""python exits.py FOLDER DELAY LAUNCHES KIND...: processes that end while a thread of ours is in the middle of its work.

Each is a fork of this process, which has imported torch, and ends as Python ends any program. Its rank speaks with the store of
a process group through a proxy that holds every answer back for DELAY seconds ("never": for good), so that nearly always a call
waits for one. Prints a line for each: kind, ending, launch, exit status, seconds, and the threads that were left when the last
exit handler ran.
"""

import atexit
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_folder: Path | None = None
"""That of the process that ends."""


def say_threads() -> None:
    if _folder is not None:
        left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        (_folder / "threads").write_text(",".join(left))


atexit.register(say_threads)  # the first that is registered is the last that runs

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed import distributed_c10d as c10d  # noqa: E402

ENDINGS = ("ends", "exit", "error", "os._exit")
LIMIT = 60.0


class Proxy:
    """Passes bytes between clients and the server, and holds answers back once `delay` is set."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            server = socket.create_connection(("127.0.0.1", self._server))
            answers = [0]
            threading.Thread(target=self._pass, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, answers), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: list[int] | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers is not None:
                    answers[0] += 1
                    if answers[0] > 1:  # the first answers the connection itself
                        time.sleep(DELAY)
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def stand_in_for_group(port: int) -> None:
    """Makes this process rank 0 of 2 of a process group, of which the store alone is there."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    replaced: dict[str, Any] = {
        "is_initialized": lambda: True,
        "get_rank": lambda: 0,
        "get_world_size": lambda: 2,
        "_get_default_store": lambda: store,
    }
    for name, value in replaced.items():
        setattr(c10d, name, value)


def agreement(folder: Path, port: int) -> None:
    """The thread that looks for a stop of the gang."""
    from client_sdk.training._job import Job

    stand_in_for_group(port)
    rank = {"RANK": "0", "WORLD_SIZE": "2", "EBB_RUN": "0", "EBB_CHECKPOINT_DIR": str(folder / "checkpoints")}
    os.environ.update(rank)
    job = Job(rank | {"EBB_RUN": "1"})  # run 1 has nothing to load, so nobody is waited for
    job.checkpointable(weights=[1.0], background=False)
    for _ in job.steps(range(2)):
        pass
    time.sleep(0.3)


def park(folder: Path, port: int) -> None:
    """The thread that agrees with ranks on other nodes when all of them park."""
    from ebb_inject.ebb_hook import control, parking

    stand_in_for_group(port)
    os.environ.update({"EBB_PARK_DIR": str(folder / "park"), "EBB_NODES": "a,b", "EBB_TASK": "0"})
    assert parking.find_parking() is not None
    (path,) = control.live(str(folder / "park"))
    control.send(path, control.PARK_TOGETHER, at_step=1)
    time.sleep(0.3)


def background(folder: Path, _port: int) -> None:
    """The thread that writes a checkpoint, which is whole in the end."""
    from client_sdk.training._job import Job

    job = Job({"EBB_CHECKPOINT_DIR": str(folder / "checkpoints")})
    job.checkpointable(weights=torch.ones(20 << 20), every_steps=1)
    for _ in job.steps(range(1)):
        pass


KINDS = {"agreement": agreement, "park": park, "background": background}


def main() -> None:
    """Returns in each fork, which then ends."""
    global _folder
    port = served()
    for kind in sys.argv[4:]:
        for ending in ENDINGS:
            for launch in range(int(sys.argv[3])):
                folder = Path(sys.argv[1], f"{kind}-{ending}-{launch}")
                folder.mkdir()
                if (pid := os.fork()) == 0:
                    _folder = folder
                    KINDS[kind](folder, port)
                    end(folder, ending)
                    return
                wait(pid, f"{kind} {ending} {launch}", folder)
    os._exit(0)


def served() -> int:
    """The port of a store's proxy, which lives in a process of its own as long as this one does."""
    told, tell = os.pipe()
    lives, alive = os.pipe()
    if os.fork() == 0:
        os.close(alive)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(tell, str(Proxy(store.port).port).encode())
        os.read(lives, 1)
        os._exit(0)
    return int(os.read(told, 10))


def end(folder: Path, ending: str) -> None:
    (folder / "ending").write_text("")
    if ending == "exit":
        sys.exit(3)
    if ending == "error":
        raise RuntimeError("on purpose")
    if ending == "os._exit":
        os._exit(4)


def wait(pid: int, name: str, folder: Path) -> None:
    limit = time.monotonic() + LIMIT
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > limit:
            os.kill(pid, 9)
        time.sleep(0.005)
    now = time.time()
    threads = (folder / "threads").read_text() if (folder / "threads").exists() else ""
    took = now - (folder / "ending").stat().st_mtime if (folder / "ending").exists() else -1.0
    fields = *name.split(), str(os.waitstatus_to_exitcode(found[1])), f"{took:.2f}", threads or "-"
    sys.stdout.write("\t".join(fields) + "\n")
    sys.stdout.flush()


DELAY = 1e9 if sys.argv[2] == "never" else float(sys.argv[2])
main()
