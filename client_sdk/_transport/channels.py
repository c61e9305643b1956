"""Channels: the options of all of them, and one to a scheduler with the methods that are called over it."""

from typing import Any, NamedTuple

import grpc

from client_sdk._protobuf.call import Call

OPTIONS = (
    # The scheduler is inside the site: a proxy for the world outside would only be in the way.
    ("grpc.enable_http_proxy", 0),
    # After a restart of the scheduler, the channel must not sleep for longer than the calls on it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # What waits here for a reader who has stopped, as `less` does: a megabyte, not the tens of them that gRPC lets in ahead
    # where it finds the network fast.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2**20),
    # Finds within four seconds, in which a standby takes over, that a scheduler is gone without a word, or stands still. Only
    # calls and watches under way send pings. The scheduler permits pings as often as this.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),  # a minute if it is not said, whatever the line above says
    ("grpc.http2.max_pings_without_data", 0),
)


class Terms(NamedTuple):
    """On which a channel is made."""

    credentials: grpc.ChannelCredentials | None
    """None: without TLS."""
    stamp: object
    """Of the files that they are from."""


class Line:
    """A channel to one scheduler, and the methods that were called over it: gRPC takes long to make one callable."""

    def __init__(self, channel: Any, terms: Terms) -> None:
        self.channel = channel
        self.stamp = terms.stamp
        self._methods: dict[str, Any] = {}

    def method(self, call: Call[Any]) -> Any:
        """What sends such a call, once for all of its kind."""
        if (found := self._methods.get(call.method)) is None:
            found = self._methods[call.method] = self.channel.unary_unary(
                f"/ebb.v1.{call.method}",
                request_serializer=type(call.message).SerializeToString,
                response_deserializer=call.response.FromString,
            )
        return found
