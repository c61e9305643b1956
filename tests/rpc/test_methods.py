"""How calls find their handlers."""

import asyncio
from typing import Any

import grpc
import pytest

from scheduler_service.rpc.access import MAY
from scheduler_service.rpc.methods import Handler, Methods
from tests.rpc.server import LIMIT, Server


class _Called:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


def test_each_handler_is_wrapped_once_by_every_layer_the_first_outermost() -> None:
    wrapped = []

    def layer(name: str, method: str, handler: Handler) -> Handler:
        wrapped.append((name, method))
        behaviour: Any = handler
        return grpc.unary_unary_rpc_method_handler(lambda said, context: f"{name}({behaviour.unary_unary(said, context)})")

    methods = Methods([lambda *given: layer("outer", *given), lambda *given: layer("inner", *given)])
    method: Any = grpc.unary_unary_rpc_method_handler(lambda said, _: said)
    methods.add_registered_method_handlers("a.B", {"C": method})
    for _ in range(3):
        found: Any = methods.service(_Called("/a.B/C"))
        assert found.unary_unary("x", None) == "outer(inner(x))"
    assert wrapped == [("inner", "/a.B/C"), ("outer", "/a.B/C")]
    assert methods.service(_Called("/a.B/D")) is None


def test_a_call_wakes_no_task_for_each_method(database_url: str) -> None:
    with Server(database_url) as server:
        waiting = len(asyncio.all_tasks(server._loop))
        assert waiting < len(MAY) / 2, "the server keeps tasks for its methods, and each call wakes all of them"


@pytest.mark.parametrize("method", ["/ebb.v1.Scheduler/Nothing", "/ebb.v1.Nobody/Get"])
def test_a_method_that_nobody_has(database_url: str, method: str) -> None:
    with Server(database_url) as server:
        call = server.channel.unary_unary(method)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=LIMIT)
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
