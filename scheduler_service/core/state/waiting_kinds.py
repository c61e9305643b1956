"""The jobs of a queue by what they request. Jobs of one kind fit in the same places, so policies look at one for all.

For sites without virtual clusters, where jobs behind a waiting one may start if they do not delay it. The index is built when
it is first used and brought up to date when it is used again: as long as every job finds room, it is not needed.
"""

from collections.abc import Callable, Iterable, Mapping

from scheduler_service.core.model import Job
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.state.queue import Queue
from scheduler_service.core.state.queue_order import QueueKey

Kinds = Mapping[Needs, Queue]
_MOST_STALE = 4096
"""If more jobs than this have moved since the index was last used, it is rebuilt from the queue."""


class WaitingKinds:
    """The kinds of jobs in one queue."""

    __slots__ = ("_kinds", "_of", "_stale")

    def __init__(self) -> None:
        self._kinds: dict[Needs, Queue] | None = None
        """None: the index was not used yet, or not for a long time."""
        self._of: dict[int, tuple[Needs, QueueKey]] = {}
        """Job -> its kind, and its key in the queue."""
        self._stale: dict[int, None] = {}
        """Jobs that joined, moved or left since the index was last used."""

    def note(self, job_id: int) -> None:
        """Notes that the job joined the queue, moved in it or left it, or that its request has changed."""
        if self._kinds is not None:
            self._stale[job_id] = None
            if len(self._stale) > _MOST_STALE:
                self._kinds = None

    def kinds(self, queue: Iterable[QueueKey], jobs: Mapping[int, Job], key_of: Callable[[Job], QueueKey | None]) -> Kinds:
        """Return the queue of each kind. `key_of` returns the key of a job in the queue; None: it is not in the queue."""
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
