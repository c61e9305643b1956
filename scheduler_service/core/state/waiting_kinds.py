"""The jobs of a queue by what they ask for: those of one kind fit in the same places, so that one is looked at for all.

For sites without virtual clusters, where jobs behind one that waits may start if they do not delay it. The index is made when
it is first asked for, and brought up to date when it is asked for again: where every job finds room, nobody asks.
"""

from collections.abc import Callable, Iterable, Mapping

from scheduler_service.core.model import Job
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.state.queue import Queue
from scheduler_service.core.state.queue_order import QueueKey

Kinds = Mapping[Needs, Queue]
_MOST_STALE = 4096
"""If more jobs than these have moved since somebody asked, the index is made from the queue."""


class WaitingKinds:
    """Of one queue."""

    __slots__ = ("_kinds", "_of", "_stale")

    def __init__(self) -> None:
        self._kinds: dict[Needs, Queue] | None = None
        """None: nobody has asked, or not for long."""
        self._of: dict[int, tuple[Needs, QueueKey]] = {}
        """By job: its kind, and its place in the queue."""
        self._stale: dict[int, None] = {}
        """Jobs that came, moved or left."""

    def note(self, job_id: int) -> None:
        """The job came to the queue, moved in it or left it, or asks for something else."""
        if self._kinds is not None:
            self._stale[job_id] = None
            if len(self._stale) > _MOST_STALE:
                self._kinds = None

    def kinds(self, queue: Iterable[QueueKey], jobs: Mapping[int, Job], key_of: Callable[[Job], QueueKey | None]) -> Kinds:
        """`key_of`: the place of a job in the queue; None: it is not there."""
        if self._kinds is None:
            self._kinds, self._of = {}, {}
            for key in queue:
                self._add(jobs[key[-1]], key)
        else:
            for job_id in self._stale:
                self._remove(job_id)
                job = jobs.get(job_id)
                key_now = None if job is None else key_of(job)
                if job is not None and key_now is not None:
                    self._add(job, key_now)
        self._stale.clear()
        return self._kinds

    def _add(self, job: Job, key: QueueKey) -> None:
        assert self._kinds is not None
        kind = job.needs()
        self._of[job.id] = kind, key
        queue = self._kinds.get(kind)
        if queue is None:
            queue = self._kinds[kind] = Queue()
        queue.add(key)

    def _remove(self, job_id: int) -> None:
        assert self._kinds is not None
        at = self._of.pop(job_id, None)
        if at is not None:
            kind, key = at
            queue = self._kinds[kind]
            queue.remove(key)
            if queue.first is None:
                del self._kinds[kind]
