"""The methods of all services, by their full names, each wrapped once in what every call has in common.

That is less work at each call than gRPC's own ways. Its interceptors are asked for the handler at every call. And for each
method that is registered its server keeps a task, and all of these tasks wake up for each call: what a Submit costs grew with
the number of methods. Handlers that are not registered share one task.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

import grpc

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = grpc.aio.ServicerContext[Any, Any]
Call = Callable[[Any, Context], Awaitable[Any]]
"""Serves a call, given an iterator of its requests; inside the layer `receive_request`, its request, if the method has one.
Returns the response, or writes responses and returns None. All four kinds of methods have this one shape: a layer is written
once."""


class Method(NamedTuple):
    name: str
    """In full: /package.Service/Method."""
    parse: Callable[[bytes], Any]
    """Makes a request of its bytes. Raises DecodeError."""
    streams_requests: bool


Layer = Callable[[Method, Call], Call]
"""Wraps what serves the calls of a method."""

_KINDS: Mapping[bool, Callable[..., Handler]] = {
    False: grpc.stream_unary_rpc_method_handler,
    True: grpc.stream_stream_rpc_method_handler,
}
"""Handler constructors, by whether responses are a stream."""


class Methods(grpc.GenericRpcHandler):
    """Takes the place of the server when the generated code adds a servicer. The first of `layers` is the outermost.

    To gRPC, every method takes a stream of requests. If it knew of a single one, it would receive all of that before the
    caller is known, so that callers without a token could fill the memory. It hands over the bytes of requests as they came,
    and a layer parses them: if gRPC did, it would answer UNKNOWN, with a traceback in the log, where they are no message.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        self._handlers: dict[str, Handler] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = self._wrap(f"/{service}/{name}", handler)

    def add_generic_rpc_handlers(self, _handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """The generated code says everything twice."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "Handler | None":
        return self._handlers.get(handler_call_details.method)

    def _wrap(self, name: str, handler: Any) -> Handler:
        method = Method(name, handler.request_deserializer, handler.request_streaming)
        call = _call(handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream)
        for layer in reversed(self._layers):
            call = layer(method, call)
        kind = _KINDS[handler.response_streaming]
        return kind(call, request_deserializer=None, response_serializer=handler.response_serializer)


def _call(behaviour: Callable[[Any, Context], Any]) -> Call:
    if not inspect.isasyncgenfunction(behaviour):
        return behaviour

    async def write_responses(request: Any, context: Context) -> None:
        async with aclosing(behaviour(request, context)) as responses:
            async for response in responses:
                try:
                    await context.write(response)
                except asyncio.CancelledError as cancelled:
                    await responses.athrow(cancelled)  # the behaviour may know why, and say so
                    raise

    return write_responses
