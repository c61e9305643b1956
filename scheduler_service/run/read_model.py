"""The read model: the rows of the last commit, owned by the event loop and updated with each commit's changes.

Rows are frozen, so nothing is copied. The changes of the last commits are kept for watchers: each has a position in them,
and one that fell behind their beginning starts again from a snapshot.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from scheduler_service.core.model import Earmark, Job, Node, NodeDevice, Run, RunKey, present
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.values import ZERO, Vector, add, sub
from scheduler_service.core.state.journal import Change
from scheduler_service.run.queue_heads import Heads, with_reason

KEPT_COMMITS = 2000
ALL_JOBS, NODES = 0, -1
"""Keys of watchers that wait for more than one job; otherwise the key is the job's ID."""
_task = attrgetter("task")
_shown = attrgetter("started_us", "ended_us", "guaranteed")
"""Fields of a task whose changes watchers of its job see, whether or not the job's row changes with them."""


class JobView(NamedTuple):
    job: Job
    runs: tuple[Run, ...]
    """Every task of the current or last run, in the order of ranks; none before the first."""
    operation: Operation | None = None
    """The operation under way on the run, as the leader knows it."""


class NodeView(NamedTuple):
    node: Node
    free: Vector
    earmarked: Vector
    devices: tuple[NodeDevice, ...]
    groups: Mapping[int, tuple[int, ...]]
    """Device -> the jobs whose runs share it; none where nobody holds it."""


class Update(NamedTuple):
    """An update for a watcher: everything it watches (snapshot), or the changes since the last update."""

    snapshot: bool
    jobs: tuple[JobView, ...]
    nodes: tuple[NodeView, ...]
    commit_no: int


class _Commit(NamedTuple):
    number: int
    jobs: dict[int, JobView]
    nodes: frozenset[int]


class View:
    """Not thread-safe: for the event loop alone."""

    def __init__(self, rows: Iterable[tuple[str, object, object]], commit_no: int) -> None:
        self.commit_no = commit_no
        self.closed = False
        self.jobs: dict[int, Job] = {}
        self.runs: dict[int, tuple[Run, ...]] = {}
        """The current or last run of each live job: its tasks."""
        self.nodes: dict[int, Node] = {}
        """With those that are deleted: jobs ran there."""
        self._ids: dict[str, int] = {}
        """The same nodes by their names."""
        self.devices: dict[int, dict[int, NodeDevice]] = {}
        self.earmarks: dict[int, Earmark] = {}
        self.runs_on: dict[int, dict[RunKey, Run]] = {}
        """Node -> the runs that are active there."""
        self._earmarks_on: dict[int, set[int]] = {}
        self.operations: dict[int, Operation] = {}
        """Job -> the operation under way on its run."""
        self.heads: Heads = {}
        """The first job of each queue."""
        self._kept: deque[_Commit] = deque(maxlen=KEPT_COMMITS)
        self._wakers: dict[int, set[asyncio.Future[int]]] = {}
        self._take_changes([Change(name, key, None, row) for name, key, row in rows])

    # ---- forward -------------------------------------------------------------------------------------------------------

    def apply(self, commit_no: int, changes: Sequence[Change], heads: Heads) -> None:
        """Apply the changes of a commit, and wake their watchers. `heads`: the first job of each queue."""
        self.heads = heads
        if commit_no == self.commit_no:
            return  # nothing was committed, for nothing had changed
        jobs, nodes = self._take_changes(changes)
        self.commit_no = commit_no
        self._kept.append(_Commit(commit_no, jobs, frozenset(nodes)))
        for key in (*jobs, *((ALL_JOBS,) if jobs else ()), *((NODES,) if nodes else ())):
            self._wake(key)

    def _take_changes(self, changes: Sequence[Change]) -> tuple[dict[int, JobView], set[int]]:
        touched: dict[int, Job] = {}
        nodes: set[int] = set()
        for table, key, old, new in changes:
            match new:
                case Job():
                    touched[new.id] = new
                    self.jobs[new.id] = new
                case Run():
                    self._take_run(new)
                    nodes.add(new.node)
                    if old is not None and _shown(old) != _shown(new):
                        touched.setdefault(new.job_id, self.jobs[new.job_id])
                case Node():
                    self.nodes[new.id] = new
                    self._ids[new.name] = new.id
                    nodes.add(new.id)
                case NodeDevice():
                    self.devices.setdefault(new.node, {})[new.index] = new
                    nodes.add(new.node)
                case Earmark():
                    self.earmarks[new.id] = new
                    self._earmarks_on.setdefault(new.node, set()).add(new.id)
                    nodes.add(new.node)
                case Operation():
                    self.operations[new.job_id] = new
                    touched.setdefault(new.job_id, self.jobs[new.job_id])
                case None if table == "operation":
                    if (of := self.operations.get(old.job_id)) is not None and of.id == key:
                        del self.operations[old.job_id]
                        if old.job_id in self.jobs:
                            touched.setdefault(old.job_id, self.jobs[old.job_id])
                case None if table == "earmark":
                    gone = self.earmarks.pop(key)
                    self._earmarks_on[gone.node].discard(key)
                    nodes.add(gone.node)
                case None if table == "device":
                    self.devices[key[0]].pop(key[1], None)
                    nodes.add(key[0])
        shown = {job_id: self._job_view(job) for job_id, job in touched.items()}
        for job_id, job in touched.items():
            if job.ended_us is not None:
                self.jobs.pop(job_id, None)
                self.runs.pop(job_id, None)
        return shown, nodes

    def _job_view(self, job: Job) -> JobView:
        return JobView(job, self.runs.get(job.id, ()), self.operations.get(job.id))

    def _take_run(self, new: Run) -> None:
        tasks = self.runs.get(new.job_id, ())
        if new.awaits:
            pass  # it is none of the launch
        elif not tasks or tasks[0].run != new.run:  # the first of a launch
            self.runs[new.job_id] = (new,)
        else:
            at = bisect_left(tasks, new.task, key=_task)
            known = at < len(tasks) and tasks[at].task == new.task
            self.runs[new.job_id] = (*tasks[:at], new, *tasks[at + known :])
        here = self.runs_on.setdefault(new.node, {})
        if new.phase.over:
            here.pop(new.key, None)
        else:
            here[new.key] = new

    # ---- reads ---------------------------------------------------------------------------------------------------------

    def job(self, job_id: int) -> JobView | None:
        """A live job; None: unknown, or ended."""
        job = self.jobs.get(job_id)
        return None if job is None else self._job_view(with_reason(job, self.heads))

    def node(self, node_id: int) -> NodeView:
        node = self.nodes[node_id]
        earmarked = ZERO
        for earmark_id in self._earmarks_on.get(node_id, ()):
            earmarked = add(earmarked, self.earmarks[earmark_id].kept)
        free = sub(node.capacity, earmarked)
        groups: dict[int, tuple[int, ...]] = {}
        shared: set[int] = set()
        for _, run in sorted(self.runs_on.get(node_id, {}).items()):
            free = sub(free, run.charged)
            for index in () if run.is_parked else run.given:
                groups[index] = (*groups.get(index, ()), run.job_id)
            if run.group:
                shared.update(run.devices)
        free = sub(free, Vector(devices=len(shared)))
        devices = tuple(row for _, row in sorted(self.devices.get(node_id, {}).items()))
        lost = sum(1 for device in devices if device.fault and device.index not in groups)
        return NodeView(node, sub(free, Vector(devices=lost)), earmarked, devices, groups)

    def find_node(self, name: str) -> Node | None:
        """The row of a node, also of one that is deleted; None where there never was one."""
        node_id = self._ids.get(name)
        return None if node_id is None else self.nodes[node_id]

    def all_nodes(self) -> tuple[NodeView, ...]:
        return tuple(self.nodes_after(0))

    def nodes_after(self, node_id: int) -> Iterator[NodeView]:
        """Those with higher ids, in order; each as it is when it is asked for."""
        return (self.node(i) for i in sorted(i for i in self.nodes if i > node_id) if present(self.nodes[i]))

    # ---- watching ------------------------------------------------------------------------------------------------------

    def watch_jobs(self, after_commit: int = 0, job_id: int = 0) -> AsyncIterator[Update]:
        """Updates of every live job, or of one, from after a commit on; a snapshot first where what follows is not kept.

        Ends when the view is closed. A job that ends is in the update of the commit that ended it; one that has ended
        before is in no snapshot.
        """

        def snapshot() -> Update:
            jobs = [self.job(job_id)] if job_id else [self.job(i) for i in sorted(self.jobs)]
            return Update(True, tuple(j for j in jobs if j is not None), (), self.commit_no)

        def update_since(at: int) -> Update:
            latest: dict[int, JobView] = {}
            for commit in self._commits_after(at):
                latest |= {i: shown for i, shown in commit.jobs.items() if job_id in (0, i)}
            shown = tuple(v._replace(job=with_reason(v.job, self.heads)) for _, v in sorted(latest.items()))
            return Update(False, shown, (), self.commit_no)

        return self._watch(job_id, after_commit, snapshot, update_since)

    def watch_nodes(self, after_commit: int = 0) -> AsyncIterator[Update]:
        """The same for nodes. One that is deleted is in the update of the commit that did so."""

        def snapshot() -> Update:
            return Update(True, (), self.all_nodes(), self.commit_no)

        def update_since(at: int) -> Update:
            changed: set[int] = set().union(*(commit.nodes for commit in self._commits_after(at)))
            return Update(False, (), tuple(self.node(i) for i in sorted(changed)), self.commit_no)

        return self._watch(NODES, after_commit, snapshot, update_since)

    async def _watch(
        self, key: int, at: int, snapshot: Callable[[], Update], since: Callable[[int], Update]
    ) -> AsyncIterator[Update]:
        while not self.closed:
            if not self.holds_after(at):
                update = snapshot()
            else:
                update = since(at)
            at = update.commit_no
            if update.snapshot or update.jobs or update.nodes:
                yield update
            if at == self.commit_no and not self.closed:
                # The waker passes its commit number: nothing that is watched changed in the commits before it.
                at = max(at, await self._sleep(key) - 1)

    def holds_after(self, commit_no: int) -> bool:
        """Whether every change after that commit is kept."""
        if commit_no <= 0 or commit_no > self.commit_no:
            return False
        oldest = self._kept[0].number if self._kept else self.commit_no + 1
        return commit_no + 1 >= oldest

    def _commits_after(self, commit_no: int) -> Iterable[_Commit]:
        """Kept commits after that one, oldest first; costs what it returns."""
        newer = []
        for commit in reversed(self._kept):
            if commit.number <= commit_no:
                break
            newer.append(commit)
        return reversed(newer)

    async def _sleep(self, key: int) -> int:
        waker: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._wakers.setdefault(key, set()).add(waker)
        try:
            return await waker
        finally:
            if waiting := self._wakers.get(key):
                waiting.discard(waker)
                if not waiting:
                    del self._wakers[key]

    def _wake(self, key: int) -> None:
        for waker in self._wakers.pop(key, ()):
            if not waker.done():
                waker.set_result(self.commit_no)

    def close(self) -> None:
        """Ends every watch."""
        self.closed = True
        for key in list(self._wakers):
            self._wake(key)
