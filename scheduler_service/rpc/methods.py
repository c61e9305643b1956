"""The methods of all services, by their full names, each wrapped once in what every call has in common.

That is less work at each call than gRPC's own ways. Its interceptors are asked for the handler at every call. And for each
method that is registered its server keeps a task, and all of these tasks wake up for each call: what a Submit costs grew with
the number of methods. Handlers that are not registered share one task.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import grpc

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Layer = Callable[[str, Handler], Handler]
"""Wraps the handler of a method, whose full name is given first."""


class Methods(grpc.GenericRpcHandler):
    """Stands in for the server where the generated code adds a servicer. The first of `layers` is the outermost."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        self._handlers: dict[str, Handler] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        for name, handler in handlers.items():
            method = f"/{service}/{name}"
            for layer in reversed(self._layers):
                handler = layer(method, handler)
            self._handlers[method] = handler

    def add_generic_rpc_handlers(self, _handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """The generated code says everything twice."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "Handler | None":
        return self._handlers.get(handler_call_details.method)
