"""The scheduler of a fake cluster: the real engine and gRPC services, in a thread of this process, over a store in memory."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AsyncExitStack, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from ebb.v1 import cluster_pb2

from client_sdk._protobuf import convert
from client_sdk.errors import FailedPrecondition, Internal, InvalidArgument, NotFound
from client_sdk.models import Job, Resources
from client_sdk.testing import _directions
from client_sdk.testing._agents import Agent
from client_sdk.testing._calls import Calls
from client_sdk.testing._directions import Directions
from client_sdk.testing._runs import Runs
from client_sdk.testing._script import Script
from scheduler_service.config import Config
from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import Order, PlanReady
from scheduler_service.core.model import Cluster
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.state import State
from scheduler_service.database import FileLimits
from scheduler_service.engine_settings import micros, stages_of, vc_policy_of
from scheduler_service.memory_database import MemoryReader, MemoryUserFiles, open_for_leader
from scheduler_service.rpc.backend import Backend, Leading
from scheduler_service.rpc.convert.jobs import job_out
from scheduler_service.rpc.epoch_seals import Seals
from scheduler_service.rpc.interceptors import check
from scheduler_service.rpc.redaction import Sight
from scheduler_service.rpc.server import serving
from scheduler_service.rpc.services.agent_link import AgentLink
from scheduler_service.rpc.services.logs import Transfers
from scheduler_service.run.dispatch import Dispatch
from scheduler_service.run.engine_thread import EngineThread
from scheduler_service.run.planner_process import Planner
from scheduler_service.run.read_model import JobView
from scheduler_service.startup import clock, load_state
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory

T = TypeVar("T")

_LOOK = 0.5
"""Seconds after which a caller looks whether the cluster was closed meanwhile."""
_CLUSTER = Cluster("testing", 0)
"""The same seed for all: a test sees the same random choices each time."""


@lru_cache(maxsize=1)
def _seals() -> Seals:
    return Seals(_CLUSTER.id, _CLUSTER.seed)


class _Planner(Planner):
    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()


class Service:
    """Serves from `start` until `stop`. Its other methods are used on its event loop (`call`)."""

    def __init__(
        self, config: Config, nodes: Mapping[str, Resources], script: Script, by_hand: bool, user: str, folder: Path
    ) -> None:
        self.address = ""
        self._config = config
        self._nodes = nodes
        self._user = user
        self._store = Memory()
        self.runs = Runs(folder, self._store, script, by_hand, self.find)
        self.calls = Calls(self.settle)
        self.agents: dict[str, Agent] = {}
        self._by_hand = by_hand
        self._orders = 0
        """The number of orders that were sent to agents."""
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        """The error that kept it from starting."""
        self._broken: BaseException | None = None
        """The error of an agent that has failed."""
        self._thread = threading.Thread(target=self._run, name="ebb-testing", daemon=True)

    # ---- from the threads of the test ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Raises what keeps it from starting, and ValueError for nodes that cannot be."""
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            self._thread.join()
            raise ValueError(f"testing.cluster: {self._fault}") if isinstance(self._fault, Refused) else self._fault

    def stop(self) -> None:
        """Safe to repeat."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()

    def do(self, action: Callable[[], T]) -> T:
        """Do something on the event loop; here, once the cluster is closed."""

        async def act() -> T:
            return action()

        return self.call(act()) if self._thread.is_alive() else action()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something on the event loop. Raises FailedPrecondition if the cluster is closed."""
        if self._thread.is_alive():
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
            while self._thread.is_alive():
                wait([asked], _LOOK)
                if asked.done():
                    return asked.result()
        work.close()
        raise FailedPrecondition("the fake cluster is closed")

    # ---- on the event loop ---------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until nothing happens any more by itself, other than with time. Raises what the test's script raised."""
        while True:
            while self._is_busy() and self._broken is None:
                await self.runs.happens()
            if self._broken is not None:
                raise Internal(f"the fake cluster broke: {self._broken!r}")
            moves = self.runs.moves
            due = await self._engine.ask(lambda state, now, _rng, _policy: _is_due(state, now))
            if not (due or self._is_busy() or moves != self.runs.moves):
                break
        if (fault := self.runs.take_fault()) is not None:
            raise Internal(f"the fake cluster, or the test's script, raised {fault!r}")

    def find(self, job_id: int) -> Job:
        """The job as a client sees it. Raises NotFound."""
        view = self._engine.view.job(job_id)
        if view is None:
            stored = memory.find_job(self._store, job_id)
            if stored is None:
                said = f"there is no job {job_id}; `ebb list --all` shows those there are"
                raise NotFound(said, reason="NO_SUCH_JOB", metadata={"job_id": str(job_id)})
            view = JobView(*stored)
        return convert.job(job_out(view, self._engine.view.nodes, Sight(self._user, True, self._backend.secrets)))

    def all_jobs(self) -> list[Job]:
        """Every job, in the order of submission."""
        return [self.find(job.id) for job, _ in reversed(memory.list_jobs(self._store, limit=1 << 30))]

    async def observe(self, node: str, seen: cluster_pb2.NodeObservations | None) -> None:
        """Set what an agent observes. Raises NotFound, and InvalidArgument for what no agent could observe."""
        agent = self.agents.get(node)
        if agent is None:
            said = f"there is no node {node}; `ebb node list` shows those there are"
            raise NotFound(said, reason="NO_SUCH_NODE", metadata={"node": node})
        try:
            check(agent.observations(seen))
        except Refused as wrong:
            raise InvalidArgument(str(wrong), reason=wrong.reason, metadata=wrong.metadata) from None
        agent.observe(seen)
        await self.settle()

    async def start_job(self, job_id: int) -> int:
        """Start a queued job; return the job that started. Raises FailedPrecondition."""
        await self._wish(_directions.start(job_id))
        return self._directions.started

    async def preempt_job(self, job_id: int, for_job: int) -> None:
        """Raises FailedPrecondition."""
        await self._wish(_directions.preempt(job_id, for_job))

    async def _wish(self, wish: PlanReady) -> None:
        async with self._wishing:
            await self._engine.handle(wish)
            if self._directions.refusal:
                raise FailedPrecondition(self._directions.refusal)

    def _is_busy(self) -> bool:
        taken = sum(agent.orders for agent in self.agents.values())
        return (
            self._orders != taken or self.runs.busy or self._planner.busy or any(agent.busy for agent in self.agents.values())
        )

    def _agent_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self._broken = task.exception() or EOFError("an agent has ended")
            self.runs.note_move()

    def _send(self, dispatch: Dispatch, orders: Sequence[Order]) -> None:
        if orders:
            self._orders += len(orders)
            dispatch.send(self._engine.view, orders)
            self.runs.note_move()

    # ---- the service ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as fault:
            self._fault = fault
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._wishing = asyncio.Lock()
        async with AsyncExitStack() as stack:
            leading = self._lead(stack)
            transfers = Transfers()
            link = AgentLink(self._backend, transfers)
            serve = serving(self._config.listen, self._backend, transfers=transfers, outermost=[self.calls.around])
            self.address, _ = await stack.enter_async_context(serve)
            stack.push_async_callback(self._end_calls)
            for name, resources in self._nodes.items():
                agent = self.agents[name] = Agent(name, resources, self.runs, link)
                serving_agent = asyncio.create_task(agent.serve())
                serving_agent.add_done_callback(self._agent_ended)
                stack.push_async_callback(_cancelling(serving_agent))
                await agent.wait_joined()
            await self.settle()
            self._ready.set()
            stopping = asyncio.create_task(self._stopped.wait())
            ends: set[asyncio.Future[Any]] = {stopping, leading.service.stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()

    def _lead(self, stack: AsyncExitStack) -> Leading:
        """Begin the one leadership of this cluster, which ends with the stack."""
        config, store = self._config, self._store
        epoch = memory.take(store, "testing", 60)
        assert epoch is not None
        memory.commit(store, epoch, [Change("cluster", 0, None, _CLUSTER)], [])
        limits = FileLimits(config.snapshot_mib << 20, config.result_mib << 20, config.files_of_user_mib << 20)
        self._backend = Backend(
            MemoryReader(store),
            self._user,
            micros(config.default_grace),
            0.0,  # agents of this process report at once
            config.silent_after,
            config.virtual_clusters,
            vc_policy_of(config),
            files=MemoryUserFiles(store, limits),
            look_seconds=0.0,
        )
        stack.callback(self._backend.close)
        state, view, writer = load_state(partial(open_for_leader, store, epoch), config)
        stages = stages_of(config)
        self._directions = Directions(None if self._by_hand else stages.policy)
        dispatch = Dispatch()
        self._planner = _Planner(lambda event: self._engine.handle(event))
        self._engine = EngineThread(
            state,
            view,
            self._directions.serve,
            writer,
            partial(self._send, dispatch),
            clock(state.cluster.clock_us),
            delegate=self._planner.take_delegated,
        )
        self._engine.start()
        stack.push_async_callback(self._end_engine)
        leading = Leading(self._engine, dispatch, stages, state.cluster.id, epoch, lambda: float("inf"), _seals())
        self._backend.lead(leading)
        return leading

    async def _end_calls(self) -> None:
        """End watches, so that the server need not wait for them."""
        self.calls.cut_streams()

    async def _end_engine(self) -> None:
        self._backend.lead(None)
        self._engine.stop()
        await self._engine.stopped
        await self._planner.close()


def _cancelling(task: "asyncio.Task[None]") -> Callable[[], Awaitable[None]]:
    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    return end


def _is_due(state: State, now: int) -> bool:
    return bool(state.deadlines) and state.deadlines[0][0] <= now
