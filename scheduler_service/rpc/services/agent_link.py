"""ebb.agent.v1.AgentLink: one stream for each agent. Reports go up and are acknowledged once committed; orders go down."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from urllib.parse import unquote

from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.agent.v1 import agent_link_pb2_grpc

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.handlers.skipped_job_ids import SKIPPED
from scheduler_service.core.messages import Acknowledged, Joined, NumbersLost, Reply
from scheduler_service.core.model import NodeState
from scheduler_service.rpc.backend import Backend, Leading
from scheduler_service.rpc.chunking import put_together
from scheduler_service.rpc.convert.agents import configuration_out, hello_in, log_request_out, orders_out, report_in
from scheduler_service.rpc.convert.values import duration_in
from scheduler_service.rpc.hello import HELLO_LIMIT, asker, hello_of
from scheduler_service.rpc.interceptors import check
from scheduler_service.rpc.method_table import Context
from scheduler_service.rpc.node_configuration import configuration
from scheduler_service.rpc.services.logs import Transfers
from scheduler_service.rpc.services.observations import Observer
from scheduler_service.rpc.services.snapshots import for_agent, from_agent
from scheduler_service.run.dispatch import Link
from scheduler_service.run.ports import NotCommitted
from scheduler_service.run.token_cache import wall_clock

log = logging.getLogger(__name__)


class AgentLink(agent_link_pb2_grpc.AgentLinkServicer):
    def __init__(self, backend: Backend, transfers: Transfers) -> None:
        self._backend = backend
        self._transfers = transfers
        self._turn = asyncio.Lock()
        """Held by the agent whose hello is looked at or whose link is taken down: no two of them in one turn of the event loop,
        so that users' calls come in between."""
        self._look = asyncio.Lock()
        """The same for what agents observe, which all of them say when they have connected."""

    async def Connect(self, requests: AsyncIterator[pb.ConnectRequest], context: Context) -> AsyncIterator[pb.ConnectResponse]:
        first = None
        requests = put_together(requests)
        with contextlib.suppress(TimeoutError):  # who says nothing has not said hello first, either
            async with asyncio.timeout(HELLO_LIMIT):
                first = await anext(requests, None)
        link: Link | None = None
        try:
            async with self._turn:
                # Not before it has spoken, as with what `access` refuses.
                leading = self._backend.leading
                peer = unquote(str(context.peer()))  # gRPC writes the brackets of an address of IPv6 as %5B and %5D
                hello = hello_of(first, leading, peer)
                self._refuse_twin(leading, hello)
                link = leading.dispatch.open(hello.node, hello.boot_id, hello.instance)
                taken = leading.service.handle(hello_in(hello, peer))
                await asyncio.sleep(0)
            joined = await _await_joined(leading, link, hello, taken, peer)
            async for response in self._serve(leading, link, hello, joined, requests):
                yield response
        except asyncio.CancelledError:
            if link is None or not link.ended:
                raise
            raise FailedPrecondition("LINK_ENDED", f"node {link.node} was silent, or connected anew: say hello again") from None
        finally:
            if link is not None:
                leading.dispatch.close(link)

    async def SendLog(self, requests: AsyncIterator[pb.SendLogRequest], _context: Context) -> pb.SendLogResponse:
        await self._transfers.receive(requests)
        return pb.SendLogResponse()

    async def GetSnapshot(self, request: pb.GetSnapshotRequest, _context: Context) -> pb.GetSnapshotResponse:
        return await for_agent(self._backend, request)

    async def PutResult(self, request: pb.PutResultRequest, _context: Context) -> pb.PutResultResponse:
        return await from_agent(self._backend, request)

    async def FindEnded(self, request: pb.FindEndedRequest, _context: Context) -> pb.FindEndedResponse:
        before = wall_clock() - duration_in(request.after)
        found = await self._backend.read(self._backend.reader.find_ended_before, request.job_ids, before)
        return pb.FindEndedResponse(job_ids=found)

    async def _serve(
        self,
        leading: Leading,
        link: Link,
        hello: pb.Hello,
        joined: Joined,
        requests: AsyncIterator[pb.ConnectRequest],
    ) -> AsyncIterator[pb.ConnectResponse]:
        leading.dispatch.configure(configuration(self._backend, leading))
        yield self._welcome(leading, joined)
        if joined.orders:
            for piece in orders_out(joined.orders, leading.view.commit_no, leading.view.nodes):
                yield piece
        committed: asyncio.Queue[asyncio.Future[Reply] | None] = asyncio.Queue()
        observer = Observer(leading, link, joined.node)
        reading = asyncio.create_task(_read_messages(leading, link, hello, requests, committed, observer, self._look))
        acknowledging = asyncio.create_task(_acknowledge(link, committed))
        try:
            while (waiting := await link.next()) is not None:
                orders, acknowledged, logs, changed = waiting
                if orders:
                    for piece in orders_out(orders, leading.view.commit_no, leading.view.nodes):
                        yield piece
                if acknowledged:
                    acknowledgement = pb.Acknowledgement(sequence=acknowledged)
                    yield pb.ConnectResponse(acknowledgement=acknowledgement)
                if changed is not None:
                    yield pb.ConnectResponse(configuration=configuration_out(changed))
                for asked in logs:
                    yield pb.ConnectResponse(log_request=log_request_out(asked))
            for task in (acknowledging, reading):
                if task.done():
                    task.result()  # raises what ended it
        except asyncio.CancelledError:
            await self._pause()  # those of a whole cluster may break at once
            raise
        finally:
            for task in (acknowledging, reading):
                if not task.cancel() and not task.cancelled():
                    task.exception()  # the other one's was told
            log.info("node %s disconnected", hello.node)

    async def _pause(self) -> None:
        async with self._turn:
            await asyncio.sleep(0)

    def _refuse_twin(self, leading: Leading, hello: pb.Hello) -> None:
        """Refuse a second agent of the same name: each would take the other's runs for lost. The live one stays.

        So does one that may be about to reconnect, if only another state directory of the same machine distinguishes the two:
        an agent from before a reboot of the machine is not waited for.
        """
        present = leading.dispatch.connected_link(hello.node)
        recent = time.monotonic() - self._backend.silent_after_seconds
        if present is not None and present.boot_id == hello.boot_id:
            if present.instance != hello.instance and present.heard > recent and not present.ended:
                node = leading.view.find_node(hello.node)
                raise FailedPrecondition(
                    "NODE_CONNECTED",
                    f"another agent of node {hello.node} with a copy of the same state directory is connected"
                    f"{f' from {node.address}' if node is not None else ''}: stop one of the two, and give it another --node "
                    "and an empty --state. If that agent is gone, this one is accepted once nothing was heard of it for "
                    f"{self._backend.silent_after_seconds:g} s",
                )
            return
        if present is not None and present.heard > recent:
            raise FailedPrecondition(
                "NODE_CONNECTED",
                f"an agent of node {hello.node} is connected already, from another boot or state directory: "
                "give this one another --node, or stop that one first",
            )
        node = leading.view.find_node(hello.node)
        if node is None or node.state is not NodeState.UP or not _other_spool(node.boot_id, hello.boot_id):
            return
        if leading.dispatch.boot_heard(node) > recent:
            raise FailedPrecondition(
                "NODE_CONNECTED",
                f"node {hello.node} was up a moment ago with another state directory of the same machine, whose runs would be "
                "lost: start the agent on that one, or give this one another --node; where that one is gone, this one is "
                f"accepted once nothing was heard of it for {self._backend.silent_after_seconds:g} s",
            )

    def _welcome(self, leading: Leading, joined: Joined) -> pb.ConnectResponse:
        return pb.ConnectResponse(
            welcome=pb.Welcome(
                cluster_id=leading.cluster_id,
                epoch=leading.epoch,
                acknowledged=joined.acknowledged,
                seal=leading.seals.seal_of(leading.epoch),
                transfer_key=leading.seals.transfer_key,
                configuration=configuration_out(configuration(self._backend, leading)),
            )
        )


async def _await_joined(leading: Leading, link: Link, hello: pb.Hello, taken: asyncio.Future[Reply], peer: str) -> Joined:
    """Waits until the engine has taken the hello. Raises NotCommitted, and what the node is refused for."""
    try:
        joined = await taken
    except NotCommitted:
        leading.dispatch.note_heard(link)
        raise
    assert isinstance(joined, Joined)
    if joined.acknowledged < hello.acknowledged:
        link.renews = True
        await _skip_numbers(leading, hello, joined.acknowledged, peer)
    leading.dispatch.note_joined(link)
    log.info("node %s connected from %s", hello.node, peer)
    return joined


def _other_spool(one: str, other: str) -> bool:
    """Whether two boots are of one boot of a machine, and of two spools there."""
    machine, of_machine, _ = one.rpartition("/")
    return one != other and bool(of_machine) and other.rpartition("/")[0] == machine


async def _skip_numbers(leading: Leading, hello: pb.Hello, known: int, peer: str) -> None:
    """Skip job IDs if an agent had more reports acknowledged than the database knows: it may have lost IDs, which name folders
    of checkpoints. They are skipped at most once in a leadership, since the claim cannot be proved; it has no other effect."""
    if not hello.cluster_id or hello.epoch < (skipped_below := leading.skipped_below):
        return
    log.warning(
        "%s says that its reports up to %d were acknowledged, and the database knows those up to %d: was the database restored "
        "from a backup? Skipping %d numbers of jobs",
        asker(hello, peer),
        hello.acknowledged,
        known,
        SKIPPED,
    )
    leading.skipped_below = leading.epoch + 1
    try:
        await leading.service.handle(NumbersLost())
    except BaseException:
        leading.skipped_below = skipped_below
        raise


async def _read_messages(
    leading: Leading,
    link: Link,
    hello: pb.Hello,
    requests: AsyncIterator[pb.ConnectRequest],
    committed: "asyncio.Queue[asyncio.Future[Reply] | None]",
    observer: Observer,
    look: asyncio.Lock,
) -> None:
    """Takes what the agent says until the stream ends. What cannot be taken ends the link. `look`: held by one agent in a turn
    of the event loop."""
    try:
        async for request in requests:
            link.heard = time.monotonic()
            match request.WhichOneof("message"):
                case "reports":
                    check(request.reports)
                    for report in request.reports.reports:
                        outcome = leading.service.handle(report_in(report, hello.node, hello.boot_id))
                        outcome.add_done_callback(_retrieve_error)  # the link may end before anybody asks for it
                        committed.put_nowait(outcome)
                case "observations":
                    async with look:
                        observer.take_observations(request.observations)
                        await asyncio.sleep(0)
                case "heartbeat":
                    observer.nothing()
        committed.put_nowait(None)
    except BaseException:
        link.outbox.put_nowait(None)
        raise


def _retrieve_error(outcome: asyncio.Future[Reply]) -> None:
    if not outcome.cancelled():
        outcome.exception()


async def _acknowledge(link: Link, committed: "asyncio.Queue[asyncio.Future[Reply] | None]") -> None:
    """Acknowledges each report once it is durable, in order, and then ends the link.

    A report that did not become durable ends it at once: the agent sends that again.
    """
    try:
        while (outcome := await committed.get()) is not None:
            reply = await outcome
            assert isinstance(reply, Acknowledged)
            if reply.stale:
                raise FailedPrecondition("OTHER_BOOT", f"node {link.node} has been seen with another boot since: connect again")
            link.outbox.put_nowait(reply.sequence)
    finally:
        link.outbox.put_nowait(None)
