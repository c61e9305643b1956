"""Channels: the options of all of them, and one to a scheduler with the methods that are called over it."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import grpc
from google.protobuf.message import Message

from client_sdk._protobuf.call import Call

Options: TypeAlias = tuple[tuple[str, int], ...]
OPTIONS: Options = (
    # The scheduler is inside the site: a proxy for the world outside would only be in the way.
    ("grpc.enable_http_proxy", 0),
    # After a restart of the scheduler, the channel must not sleep for longer than the calls on it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # Buffer at most 1 MiB for a reader that has stopped, such as `less`, instead of the tens of MiB that gRPC reads ahead
    # on a fast network.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2**20),
    # Detect within four seconds, the time in which a standby takes over, that a scheduler disappeared or is frozen. Only calls
    # and watches in progress send pings. The scheduler permits pings at this interval.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),  # one minute by default, regardless of the line above
    ("grpc.http2.max_pings_without_data", 0),
)


class Terms(NamedTuple):
    """On which a channel is made."""

    credentials: grpc.ChannelCredentials | None
    """None: without TLS."""
    stamp: object
    """The stamp of the files that they were read from."""


STREAMS_EACH = 64
"""Watches and logs on one connection. The scheduler takes 100 calls on each; the others are for calls that answer soon."""


class Line:
    """Connections to one scheduler, and the methods that were called over it: gRPC takes long to make one callable.

    Calls go over the first connection, and so do watches and logs as long as they are few. `make` makes a channel with options.
    """

    def __init__(self, make: Callable[[Options], Any], terms: Terms) -> None:
        self.channel = make(OPTIONS)
        self.stamp = terms.stamp
        self._make = make
        self._methods: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._carriers = [Carrier(self.channel)]

    @property
    def channels(self) -> list[Any]:
        """All channels, to be closed."""
        return [carrier.channel for carrier in self._carriers]

    def method(self, call: Call[Any]) -> Any:
        """Return the callable that sends this kind of call, created once."""
        if (found := self._methods.get(call.method)) is None:
            found = self._methods[call.method] = self.channel.unary_unary(
                f"/ebb.v1.{call.method}",
                request_serializer=type(call.message).SerializeToString,
                response_deserializer=call.response.FromString,
            )
        return found

    def carrier(self) -> "Carrier":
        """The connection for one more stream, which counts there until it is released."""
        with self._lock:
            found = next((one for one in self._carriers if one.streams < STREAMS_EACH), None)
            if found is None:
                # With a pool of its own, gRPC makes another connection; else channels to one address share theirs.
                found = Carrier(self._make((*OPTIONS, ("grpc.use_local_subchannel_pool", 1))))
                self._carriers.append(found)
            found.streams += 1
            return found


class Carrier:
    """A connection that carries streams."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.streams = 0

    def open(self, method: str, request: Message, response: type[Message], **how: Any) -> Any:
        """Begins a stream."""
        begin = self.channel.unary_stream(
            f"/ebb.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return begin(request, **how)

    def release(self) -> None:
        """One of its streams has ended."""
        self.streams -= 1
