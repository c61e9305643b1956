"""The stream to the scheduler: connects, says hello, sends reports until acknowledged, passes on desired states, reconnects.

Knows no processes and no files: those are behind `Node`.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc.aio

from node_agent.errors import Disconnected, ForeignCluster, Refused, StaleEpoch, StandsBy
from node_agent.measuring.observations import Observations
from node_agent.run_state.events import Report
from node_agent.run_state.model import Desired
from node_agent.transport import convert
from node_agent.transport.connection_ends import explain_end
from node_agent.transport.convert_pieces import pieces
from node_agent.transport.files import transferring
from node_agent.transport.logs import BROKEN, LogCalls
from node_agent.transport.messages import (
    Acknowledgement,
    DesiredRuns,
    Downward,
    Heartbeat,
    Hello,
    LogRequest,
    NodeConfiguration,
    Reports,
    Unknown,
    Upward,
    Welcome,
)
from node_agent.transport.security import Security, is_loopback
from node_agent.user_files.transfers import Calls

log = logging.getLogger(__name__)

Call = grpc.aio.StreamStreamCall[bytes, Downward]


class Node(Protocol):
    """The node for which the link speaks."""

    reported: asyncio.Event
    """Set when there is a new report, or when other devices are faulty than before."""

    def hello(self) -> Hello: ...

    def accept_welcome(self, welcome: Welcome) -> None:
        """Obey this scheduler from now on."""

    def obey(self, wanted: Sequence[Desired]) -> None: ...

    def pending(self, after: int) -> list[Report]:
        """Return the reports that are not acknowledged and have a number above `after`, in order."""

    def observations(self) -> Observations | None:
        """Return the last observations of the devices, and of the steps of runs; None: neither can be observed."""

    async def recheck_devices(self, reports: Sequence[Report]) -> None:
        """Wait for one more look at the devices, if one of these runs may have failed because a device broke."""

    def acknowledge(self, sequence: int) -> None: ...

    async def transfer(self, calls: Calls) -> None: ...

    def log(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        """Return the pieces of a run's log; the first is empty. Raises LogRefused."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds to wait before the next try, and for an answer."""

    first: float = 0.1
    longest: float = 5.0
    foreign: float = 30.0
    """Longest wait after a scheduler of another cluster answered, which does not resolve itself."""
    proven: float = 5.0
    """Seconds that a link without acknowledgements must live to count as one that works."""
    answer: float = 10.0
    heartbeat: float = 5.0
    """Used if the scheduler names no interval."""


_AT_ONCE = 1000
"""Reports of one message."""

# A peer that is dead, or frozen, is noticed even without traffic, in the time in which a standby takes over; the
# scheduler permits pings at this rate.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 2_500),
    ("grpc.keepalive_timeout_ms", 2_500),
    ("grpc.http2.ping_timeout_ms", 2_500),  # a minute if not set, whatever the line above says
    ("grpc.min_reconnect_backoff_ms", 2_000),  # also limits how long a connection may take to be made
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_http_proxy", 0),  # the scheduler is inside the site
    ("grpc.use_local_subchannel_pool", 1),  # each try makes a new connection, at our pace and not the library's
)


async def run(
    schedulers: str,
    node: Node,
    pace: Pace | None = None,
    security: Security | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Keep the agent connected to the scheduler that leads, until cancelled. `schedulers`: HOST:PORT[,HOST:PORT]...

    `tell` is called with the progress, in words.
    """
    pace = pace or Pace()
    security = security or Security()
    known = schedulers.split(",")
    target = asked = known[0]
    tries = 0
    complaints: set[str] = set()
    while True:
        asked = target if target in known else asked  # a scheduler that named an absent leader would name it again
        following = _next_scheduler(asked, known)
        longest = pace.longest
        session = Session(pace)
        try:
            await _run_connection(target, node, session, security, tell)
        except ForeignCluster as error:
            reason, text, longest = "", str(error), pace.foreign
        except Refused as error:
            reason, text, following = error.reason, str(error), target  # that is the leader's word
            if reason == "OTHER_CLUSTER":
                longest, following = pace.foreign, _next_scheduler(asked, known)
        except StandsBy as error:
            reason, text = "", str(error)
            if security.tls_ca is not None or is_loopback(error.leader):  # as with the addresses that the agent was given
                following = error.leader
        except (StaleEpoch, Disconnected) as error:
            reason, text = "", str(error)
        if session.has_worked:
            tries = 0
            complaints.clear()
        tell(text)
        if (reason or text) not in complaints:
            log.warning("%s Trying again; jobs go on.", text)
            complaints.add(reason or text)
        target = following
        # Full jitter: a thousand agents that lost one scheduler should not reconnect in step, nor all within a moment.
        wait = min(longest, pace.first * 2 ** min(tries, 20))
        await asyncio.sleep(random.uniform(0, max(wait, session.configuration.reconnect_within)))
        tries += 1


def _next_scheduler(asked: str, known: Sequence[str]) -> str:
    """Return the next of the schedulers that the agent was told about."""
    return known[(known.index(asked) + 1) % len(known)]


class Session:
    """One connection: the scheduler's configuration, and whether the connection works."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.configuration = NodeConfiguration()
        """The last one: it may change while the connection lasts, and says when to reconnect."""
        self._welcomed: float | None = None
        self.acknowledged = False

    def note_welcome(self, configuration: NodeConfiguration) -> None:
        self._welcomed = time.monotonic()
        self.configuration = configuration

    @property
    def heartbeat(self) -> float:
        """Seconds between signs of life."""
        return self.configuration.heartbeat_interval or self.pace.heartbeat

    @property
    def has_worked(self) -> bool:
        """Whether something was acknowledged, or the connection lived for a while after the welcome.

        One that is welcomed and then refused does not count, or it would be repeated without a pause, forever.
        """
        lived = self._welcomed is not None and time.monotonic() - self._welcomed >= self.pace.proven
        return self.acknowledged or lived


def check_fence(target: str, hello: Hello, welcome: Welcome) -> None:
    """Raise unless this scheduler is of our cluster and no older than the last one that was obeyed."""
    if not hello.cluster_id:
        return
    if welcome.cluster_id != hello.cluster_id:
        raise ForeignCluster(target=target, theirs=welcome.cluster_id, ours=hello.cluster_id)
    if welcome.epoch < hello.epoch:
        raise StaleEpoch(target=target, theirs=welcome.epoch, ours=hello.epoch)


async def _run_connection(target: str, node: Node, session: Session, security: Security, tell: Callable[[str], None]) -> None:
    """Run one connection, from hello to its end, which is always an exception."""
    metadata = security.metadata(target)
    async with security.channel(target, _OPTIONS) as channel:
        connect: grpc.aio.StreamStreamMultiCallable[bytes, Downward] = channel.stream_stream(
            convert.METHOD, response_deserializer=convert.decode
        )
        call: Call = connect(metadata=metadata)
        logs = LogCalls(channel, node.log, metadata)
        welcomed = False
        try:
            hello = node.hello()
            with contextlib.suppress(*BROKEN):  # refused before it was read: the next read says why
                await _write(call, hello)
            welcome = await _welcome(target, call, session.pace.answer)
            welcomed = True
            check_fence(target, hello, welcome)
            node.accept_welcome(welcome)
            node.acknowledge(welcome.acknowledged)
            session.note_welcome(welcome.configuration)
            log.info("connected to %s (cluster %s, epoch %d)", target, welcome.cluster_id, welcome.epoch)
            tell(f"connected to {target} (cluster {welcome.cluster_id}, epoch {welcome.epoch})")
            async with transferring(node.transfer, channel, metadata):
                await _converse(target, call, node, session, logs.answer)
        except BROKEN as error:
            raise explain_end(target, error, security, welcomed=welcomed) from error
        finally:
            call.cancel()
            await logs.close()


async def _write(call: Call, message: Upward) -> None:
    for piece in pieces(convert.encode(message)):
        await call.write(piece)


async def _converse(target: str, call: Call, node: Node, session: Session, answer: Callable[[LogRequest], None]) -> None:
    """Send and receive until one of the two ends. Our own cancellation is never taken for the end of the stream."""
    receiving, sending = _receive(target, call, node, session, answer), _send(call, node, session)
    tasks = [asyncio.create_task(receiving), asyncio.create_task(sending)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    ends = [end for task in tasks if not task.cancelled() and (end := task.exception()) is not None]
    # A fault of our own comes first: it caused the stream to break.
    faults = (end for end in ends if not isinstance(end, (Disconnected, *BROKEN)))
    raise next(faults, ends[0] if ends else Disconnected(target=target, why="closed the connection"))


async def _welcome(target: str, call: Call, limit: float) -> Welcome:
    try:
        async with asyncio.timeout(limit):
            first = await call.read()
    except TimeoutError:
        raise Disconnected(target=target, why=f"did not answer within {limit:g} s") from None
    if not isinstance(first, Welcome):
        raise Disconnected(target=target, why="closed the connection" if first is grpc.aio.EOF else "did not say welcome")
    return first


async def _receive(target: str, call: Call, node: Node, session: Session, answer: Callable[[LogRequest], None]) -> None:
    while (message := await call.read()) is not grpc.aio.EOF:
        match message:
            case DesiredRuns(_, runs):
                node.obey(runs)
            case Acknowledgement(sequence):
                session.acknowledged = True
                node.acknowledge(sequence)
            case LogRequest():
                answer(message)
            case NodeConfiguration():
                session.configuration = message
                node.reported.set()  # so that the wait for the next sign of life is computed again
            case Welcome() | Unknown():
                log.debug("ignored: %s", message)
    raise Disconnected(target=target, why="closed the connection")


async def _send(call: Call, node: Node, session: Session) -> None:
    """Send reports as they come, and in between a sign of life: observations of the devices, or a heartbeat. A device that
    fails is reported immediately. The only writer of the stream: while that is slow, observations are not queued."""
    sent = 0
    faults = None
    while True:
        node.reported.clear()
        waiting = node.pending(sent)
        # A fault must precede the end of the run that it broke, or the job would seem to have failed by itself.
        await node.recheck_devices(waiting)
        if (seen := node.observations()) is not None and seen.faults != faults:
            faults = seen.faults
            await _write(call, seen)
        for first in range(0, len(waiting), _AT_ONCE):
            await _write(call, Reports(tuple(waiting[first : first + _AT_ONCE])))
        if waiting:
            sent = waiting[-1].sequence
        if not node.reported.is_set():
            try:
                # Early by up to a tenth, so that agents that connected together do not beat together.
                async with asyncio.timeout(session.heartbeat * random.uniform(0.9, 1.0)):
                    await node.reported.wait()
            except TimeoutError:
                seen = node.observations()
                faults = None if seen is None else seen.faults
                await _write(call, seen or Heartbeat())
