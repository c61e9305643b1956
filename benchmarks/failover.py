"""How long users wait when the leader is lost: two schedulers with their default settings, the SDK, and an agent.

The leader is killed (`kill -9`) twenty times and stopped (SIGSTOP, as when its machine hangs) twenty times, at random
moments of its lease. Each time a submit is called at once, by a client that was given both addresses and knew the leader.
Three times are measured from the signal: until that submit is answered, until its job has run to its end (its agent has
followed the leader, too), and until a watch that was under way shows that end.
"""

import queue
import random
import signal
import statistics
import threading
import time
from contextlib import suppress

from benchmarks.figures import Figure, figure
from benchmarks.pair import LIMIT, Pair, pair
from benchmarks.scratch import scratch
from client_sdk import Cancelled, Client

ROUNDS = 20
CASES = (("kill -9", signal.SIGKILL, 3.0), ("hang", signal.SIGSTOP, 6.0))
"""Name, signal, and the most seconds that the median of the submits may take."""
COMMAND = ["true"]


def run() -> list[Figure]:
    figures = []
    with scratch() as folder, pair(folder) as two, Client(two.address, timeout=LIMIT) as client:
        client.wait(client.submit(COMMAND), timeout=LIMIT)  # the agent is there
        with Ends(two.address) as ends:
            for name, number, target in CASES:
                times = [_lose(two, client, ends, number) for _ in range(ROUNDS)]
                submits, runs, watches = zip(*times, strict=True)
                figures += [
                    figure("failover", f"{name}: a submit, median", statistics.median(submits), "s", at_most=target),
                    figure("failover", f"{name}: a submit, shortest", min(submits), "s"),
                    figure("failover", f"{name}: a submit, longest", max(submits), "s"),
                    figure("failover", f"{name}: its job has run, median", statistics.median(runs), "s"),
                    figure("failover", f"{name}: its job has run, longest", max(runs), "s"),
                    figure("failover", f"{name}: a watch shows it, median", statistics.median(watches), "s"),
                    figure("failover", f"{name}: a watch shows it, longest", max(watches), "s"),
                ]
    return figures


class Ends:
    """Watches all jobs over one watch, and notes when it shows the end of each."""

    def __init__(self, address: str) -> None:
        self._client = Client(address, timeout=LIMIT)
        self._shown: queue.Queue[tuple[int, float]] = queue.Queue()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Ends":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._thread.join(LIMIT)

    def _watch(self) -> None:
        with suppress(Cancelled):  # the end
            for update in self._client.watch():
                for job in update.jobs:
                    if job.ended:
                        self._shown.put((job.id, time.monotonic()))

    def wait(self, job_id: int) -> float:
        """The moment at which it was shown."""
        while True:
            shown, moment = self._shown.get(timeout=LIMIT)
            if shown == job_id:
                return moment


def _lose(two: Pair, client: Client, ends: Ends, number: int) -> tuple[float, float, float]:
    """The seconds from the signal until a submit is answered, until its job has ended, and until the watch shows it."""
    ends.wait(client.submit(COMMAND).id)  # everybody is with this leader
    leader = two.leader()
    logged = two.log_size(leader)
    time.sleep(random.uniform(0, 2))
    began = time.monotonic()
    two.cluster.kill(leader, number)
    job = client.submit(COMMAND)
    answered = time.monotonic()
    client.wait(job, timeout=LIMIT)
    ended = time.monotonic()
    shown = ends.wait(job.id)
    if number == signal.SIGKILL:
        two.cluster.start_standby(leader)
    else:
        two.cluster.kill(leader, signal.SIGCONT)
    two.wait_standing_by(leader, logged)
    return answered - began, ended - began, shown - began
