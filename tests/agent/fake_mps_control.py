"""nvidia-cuda-mps-control as far as the agent uses it, for machines without GPUs: a control program and a real daemon.

What goes wrong is in the file named by EBB_FAKE_MPS: any of the words "refuse" (the daemon does not start), "deaf" (it does not
answer) and "stubborn" (it does not exit when it is asked).
"""

import os
import signal
import socket
import sys
from pathlib import Path

PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
CONTROL = PIPE / "control"


def plan() -> list[str]:
    return Path(os.environ["EBB_FAKE_MPS"]).read_text().split()


def start() -> int:
    if "refuse" in plan():
        sys.stderr.write("Cannot find MPS control daemon process\n")
        return 1
    if CONTROL.exists():
        sys.stderr.write("An instance of this daemon is already running\n")
        return 1
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(CONTROL))
    listening.listen()
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        os.read(ready, 1)
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    new = PIPE / "new"
    new.write_text(f"{os.getpid()}\n")
    new.replace(PIPE / "nvidia-cuda-mps-control.pid")
    log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log"
    log.write_text(f"{os.getuid()} {os.environ['CUDA_VISIBLE_DEVICES']}")
    os.close(told)
    serve(listening)
    os._exit(0)


def serve(listening: socket.socket) -> None:
    while True:
        connection, _ = listening.accept()
        with connection:
            command = connection.recv(1024).decode().strip()
            while "deaf" in plan():
                signal.pause()
            connection.sendall(b"ok\n")
        if command.startswith("quit") and "stubborn" not in plan():
            CONTROL.unlink()
            return


def tell() -> int:
    command = sys.stdin.read()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2.0)
        try:
            connection.connect(str(CONTROL))
            connection.sendall(command.encode())
            return 0 if connection.recv(1024) else 1
        except OSError as error:
            sys.stderr.write(f"Cannot connect to the daemon: {error}\n")
            return 1


if __name__ == "__main__":
    sys.exit(start() if "-d" in sys.argv else tell())
