"""HyperQueue as a process of its own: its server and one worker, from the PyPI wheel.

`serving` is for benches; run as a program, this is that process. It leaves when its standard input ends.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hyperqueue import Client, Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

READY = "ready"


@contextmanager
def serving(folder: Path, cores: int) -> Iterator[Client]:
    """A client of a new HyperQueue whose worker offers so many cores."""
    folder.mkdir(parents=True)
    arguments = [sys.executable, "-m", "benchmarks.hyperqueue_cluster", str(folder), str(cores)]
    # Its worker leaves a socket in the folder for temporary files.
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if READY not in map(str.strip, process.stdout):  # HyperQueue itself prints a table first
            raise RuntimeError(f"HyperQueue did not start: status {process.wait()}")
        client = Client(str(folder))
        warm_up = Job(default_workdir=str(folder))
        warm_up.program(["true"], stdout=None, stderr=None)
        finish(client, warm_up)  # the worker is there
        yield client
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def finish(client: Client, *jobs: Job) -> None:
    """Submits the jobs, one call each, and waits for their ends. Raises RuntimeError when a task failed."""
    ids = [client.submit(job).id for job in jobs]
    # As `Client.wait_for_jobs`, without its progress bar.
    if client.connection.wait_for_jobs(ids, lambda _status: None):
        raise RuntimeError("a job of HyperQueue failed")


def main(folder: Path, cores: int) -> None:
    with LocalCluster(str(folder), WorkerConfig(cores=cores)):
        print(READY, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
