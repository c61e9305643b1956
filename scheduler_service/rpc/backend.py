"""The backend of the gRPC services: this scheduler's leadership while it lasts, and the database, which standbys read."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from scheduler_service.core.errors import NotFound
from scheduler_service.core.model import Node
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.model.values import Micros
from scheduler_service.database import FILE_CALLS, Reader, UserFiles
from scheduler_service.policies.stages import Stages
from scheduler_service.rpc.epoch_seals import Seals
from scheduler_service.run.dispatch import Dispatch
from scheduler_service.run.engine_thread import EngineThread, NotLeading
from scheduler_service.run.partially_parked_gangs import TornGangs
from scheduler_service.run.ports import NotCommitted
from scheduler_service.run.read_model import JobView, View
from scheduler_service.secret_arguments import SecretArguments

P = ParamSpec("P")
T = TypeVar("T")

_FIFO = VcPolicy()
_NO_SECRETS = SecretArguments()
READERS = 5
"""Queries at once: as many as there are connections to read on."""
ASK_AGAIN = 1.0
"""Seconds for which it holds who leads."""
ASK_LIMIT = 3.0
"""Seconds that a caller waits for the database at most, to be told which scheduler leads."""


@dataclass(eq=False)
class Leading:
    """Objects that exist while this scheduler leads."""

    service: EngineThread
    dispatch: Dispatch
    stages: Stages
    cluster_id: str
    epoch: int
    valid_until: Callable[[], float]
    """Until when (of `time.monotonic`) the lease is known to be ours."""
    seals: Seals
    skipped_below: int = 0
    """The numbers that the database may have lost, of which an agent of a lower epoch knows, are skipped already."""
    unsealed: set[str] = field(default_factory=set)
    """Nodes whose agents claimed a higher epoch and did not show its seal; no more than the log is to name."""
    torn: TornGangs = field(default_factory=TornGangs)
    outrun: "asyncio.Future[tuple[int, str]]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done when an agent has shown that this cluster was led in a higher epoch: that epoch, and who has shown it."""

    @property
    def view(self) -> View:
        return self.service.view

    def meet(self, epoch: int, why: str) -> None:
        """This cluster was led in a higher epoch: this leadership ends, and the next one is above that epoch."""
        if not self.outrun.done():
            self.outrun.set_result((epoch, why))


@dataclass(eq=False)
class Backend:
    """Holds the Leading of the moment, and reads from the database; handlers ask for it at each call."""

    reader: Reader
    user: str
    default_grace_us: Micros
    heartbeat_seconds: float
    silent_after_seconds: float
    virtual_clusters: bool = False
    """Whether the site has virtual clusters."""
    vc_policy: VcPolicy = _FIFO
    """Policy of virtual clusters that name none."""
    secrets: SecretArguments = _NO_SECRETS
    """Arguments of a job's command that only its owner and operators see."""
    files: UserFiles | None = None
    """Snapshots and results; None: this scheduler keeps none."""
    look_seconds: float = 1.5
    """Time in which an agent looks at its runs again and reports."""

    def __post_init__(self) -> None:
        self._file_calls = ThreadPoolExecutor(FILE_CALLS, thread_name_prefix="files")
        self._leading: Leading | None = None
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self.clock = time.monotonic
        self._leader: asyncio.Task[str] | None = None
        self._leader_asked = 0.0

    @property
    def leads(self) -> Leading | None:
        """None on a standby: and that is one, too, who was stopped for longer than its lease lasted, and does not know yet."""
        leading = self._leading
        return leading if leading is not None and time.monotonic() <= leading.valid_until() else None

    @property
    def leading(self) -> Leading:
        """Raises NotLeading."""
        if (leading := self.leads) is None:
            raise NotLeading
        return leading

    def lead(self, leading: Leading | None) -> None:
        self._leading = leading

    # ---- what a standby answers, too -----------------------------------------------------------------------------------

    async def read(self, query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a query of the reader off the loop, on threads that nothing else waits for."""
        call = partial(query, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    async def in_files(self, query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a query of `files` off the loop, on threads of their own: one that is slow keeps no reader waiting."""
        call = partial(query, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._file_calls, call)

    async def find(self, job_id: int) -> JobView:
        """The job, live or ended, as the leader sees it or as it is stored. Raises NotFound."""
        if (leading := self.leads) is not None and (live := leading.view.job(job_id)) is not None:
            return live
        stored = await self.read(self.reader.find_job, job_id)
        if stored is None:
            known = "`ebb list --all` shows those there are"
            raise NotFound("NO_SUCH_JOB", f"there is no job {job_id}; {known}", job_id=str(job_id))
        return JobView(*stored)

    async def names(self) -> Mapping[int, Node]:
        """Every node by its id."""
        return leading.view.nodes if (leading := self.leads) else await self.read(self.reader.nodes)

    async def view_of_nodes(self) -> View:
        """Return the nodes and their free resources as of the last commit."""
        return leading.view if (leading := self.leads) else await self.read(self.reader.view_of_nodes)

    # ---- who leads -----------------------------------------------------------------------------------------------------

    async def leader(self) -> str:
        """Return the leader's address from the database; empty if no scheduler leads. Queried at most once a second.

        Raises NotCommitted when it does not answer.
        """
        now = self.clock()
        if self._leader is None or (self._leader.done() and now - self._leader_asked >= ASK_AGAIN):
            self._leader_asked = now
            self._leader = asyncio.create_task(self.read(self.reader.leader))
            self._leader.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may have no reader left
        try:
            async with asyncio.timeout(ASK_LIMIT):
                return await asyncio.shield(self._leader)
        except TimeoutError:
            raise NotCommitted("the database does not answer") from None

    async def refer(self) -> Exception:
        """Return the error for a caller that needs the leader: its address, or that the database does not answer."""
        try:
            return NotLeading(await self.leader())
        except NotCommitted as lost:
            return lost

    def close(self) -> None:
        """Waits for the queries that are being answered: their connections must be back before these are closed."""
        for threads in (self._readers, self._file_calls):
            threads.shutdown(cancel_futures=True)
