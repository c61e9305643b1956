"""A scheduler and two simulated nodes on this machine until Ctrl-C: `make serve`, then `ebb submit ...` in another terminal.

All state is kept under build/serve, so that the next start knows the jobs of this one. Jobs end with their nodes.
"""

import argparse
import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from examples.cluster import Cluster, ClusterError
from examples.demo.stopping import Stopped, Stopping

PORT = 7737
"""The default port of `ebb`."""
NODES = {"dgx": "dgx-a100", "pcie": "pcie-8"}
FOLDER = Path("build/serve")

HINT = """{address}: a scheduler, and nodes {nodes} with 8 simulated GPUs each; logs are in {folder}.
Try in another terminal, in this folder:

  export PATH=.venv/bin:$PATH{export}
  ebb submit --name first --devices 2 -- python examples/train.py --steps 2000
  ebb list

Ctrl-C ends it, and every job that runs. What it knows is there again at the next start, and these jobs go on."""


def main() -> int:
    """Serves until a signal comes."""
    stopping = Stopping()
    parser = argparse.ArgumentParser(prog="make serve", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=_port, default=PORT, help="on 127.0.0.1 (default: %(default)s)")
    port = parser.parse_args().port
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = (FOLDER / "lock").open("w")  # until this process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"`make serve` runs in this folder already, and keeps its data in {FOLDER}: end that one first.")
        return 1
    if _taken(port):
        print(f"Port {port} of 127.0.0.1 is taken by another program: take another port with", end=" ")
        print(f"`make serve ARGS='--port {port + 1}'`.")
        return 1
    (FOLDER / "address").unlink(missing_ok=True)
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"  # `python` is to be this one for jobs, too
    try:
        # Who tries Ebb wants to see a preemption at once, and not when a run is a minute old.
        with Cluster(FOLDER, ["--min-run", "0"], environment={"PATH": path}, pause=stopping.pause) as cluster:
            cluster.listen = f"127.0.0.1:{port}"
            cluster.start_scheduler()
            for name, profile in NODES.items():
                cluster.start_agent(name, profile)
            print(_hint(cluster), flush=True)
            _watch_over(cluster, stopping)
    except ClusterError as error:
        print(f"It cannot go on: {error}")
        return 1
    except Stopped as stopped:
        return 128 + stopped.number


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 1 to 65535")
    return int(text)


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _hint(cluster: Cluster) -> str:
    return HINT.format(
        address=cluster.address,
        nodes=" and ".join(NODES),
        folder=FOLDER,
        export="" if cluster.address.endswith(f":{PORT}") else f" EBB_ADDRESS={cluster.address}",
    )


def _watch_over(cluster: Cluster, stopping: Stopping) -> NoReturn:
    while True:
        stopping.pause(0.5)
        for name, process in cluster.processes.items():
            if process.poll() is not None:
                raise ClusterError(f"{name} ended with status {process.returncode}:\n{cluster.tail(name)}")


if __name__ == "__main__":
    sys.exit(main())
