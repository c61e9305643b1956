"""A client that goes on submitting, whatever is killed."""

import threading
from collections.abc import Callable
from random import Random

from client_sdk import Client, EbbError, Job
from tests.harness.limits import LIMIT, WHOLE_NODE
from tests.harness.site import Site
from tests.store.waiting import wait_for


class Load:
    """A client that goes on submitting over every kill, from a thread of its own. Use as a context.

    Short jobs of both classes and training jobs with checkpoints, which trials as large as a node preempt. A submit that fails
    is sent again with its request_id until it is answered. There are never more than `ahead` jobs that have not completed.
    """

    def __init__(self, site: Site, seed: int, ahead: int = 10) -> None:
        self.answered: dict[str, int] = {}
        """request_id -> job, of every submit that got an answer."""
        self._site = site
        self._random = Random(seed)
        self._seed = seed
        self._ahead = ahead
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"load-{seed}")

    def __enter__(self) -> "Load":
        self._ended_before = self._site.evidence.count("end")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * LIMIT)
        assert not self._thread.is_alive()

    def wait_for_progress(self, answers: int = 3, ends: int = 2) -> None:
        """Until it got so many answers, and so many jobs completed, from now on."""
        answered, ended = len(self.answered), self._site.evidence.count("end")

        def moved() -> bool:
            if self._fault is not None:
                raise self._fault
            return len(self.answered) >= answered + answers and self._site.evidence.count("end") >= ended + ends

        wait_for(moved, LIMIT)

    def check(self) -> None:
        """Every job that was accepted is there, once, and is the one that was answered."""
        if self._fault is not None:
            raise self._fault
        rows = self._site.database.ask("SELECT id, request_id FROM job WHERE request_id LIKE %s", f"load-{self._seed}-%")
        assert {row["request_id"]: row["id"] for row in rows} == self.answered
        assert len(rows) == len(self.answered)

    def _run(self) -> None:
        try:
            with Client(self._site.cluster.address, timeout=5) as client:
                for number in range(10_000):
                    while len(self.answered) - (self._site.evidence.count("end") - self._ended_before) >= self._ahead:
                        if self._stop.wait(0.01):
                            return
                    if self._stop.wait(self._random.uniform(0, 0.03)):
                        return
                    self._submit(client, f"load-{self._seed}-{number}", self._choose())
        except BaseException as fault:
            self._fault = fault

    def _submit(self, client: Client, request_id: str, job: Callable[..., Job]) -> None:
        last: EbbError | None = None
        for _ in range(20):
            try:
                self.answered[request_id] = job(client=client, request_id=request_id).id
                return
            except EbbError as error:
                last = error
        raise AssertionError(f"{request_id} was not accepted") from last

    def _choose(self) -> Callable[..., Job]:
        draw = self._random.random()
        if draw < 0.15:
            steps, devices = str(self._random.randint(5, 20)), self._random.choice([4, WHOLE_NODE])
            return lambda **o: self._site.trainer("--steps", steps, devices=devices, grace=30, **o)
        job_class = "trial" if draw < 0.4 else "best-effort"
        devices = self._random.choice([1, 2, 4, WHOLE_NODE]) if job_class == "trial" else self._random.choice([0, 1, 2])
        seconds = self._random.uniform(0, 0.1)
        return lambda **o: self._site.short(seconds, job_class=job_class, devices=devices, grace=5, **o)
