"""How calls find their handlers."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest

from scheduler_service.rpc.access import MAY
from scheduler_service.rpc.method_table import Call, Method, Methods
from tests.rpc.server import LIMIT, Server


class _Called:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


async def test_every_kind_of_method_is_wrapped_once_by_every_layer_the_first_outermost() -> None:
    wrapped, written = [], []

    def layer(name: str, method: Method, call: Call) -> Call:
        wrapped.append((name, *method))

        async def around(request: Any, context: Any) -> Any:
            return f"{name}({await call(request, context)})"

        return around

    async def answer(request: Any, _: Any) -> Any:
        return request

    async def answers(request: Any, _: Any) -> AsyncIterator[Any]:
        yield request
        yield 2

    class Context:
        async def write(self, response: Any) -> None:
            written.append(response)

    methods = Methods([partial(layer, "outer"), partial(layer, "inner")])
    kinds: dict[str, Any] = {
        "unary_unary": grpc.unary_unary_rpc_method_handler(answer, int, str),  # type: ignore[arg-type]
        "unary_stream": grpc.unary_stream_rpc_method_handler(answers, int, str),  # type: ignore[arg-type]
        "stream_unary": grpc.stream_unary_rpc_method_handler(answer, int, str),  # type: ignore[arg-type]
        "stream_stream": grpc.stream_stream_rpc_method_handler(answers, int, str),  # type: ignore[arg-type]
    }
    methods.add_registered_method_handlers("a.B", kinds)
    for kind in kinds:
        for _ in range(3):
            found: Any = methods.service(_Called(f"/a.B/{kind}"))
            assert (found.request_deserializer, found.response_serializer) == (None, str), "the layers parse requests"
            said = await getattr(found, f"stream_{kind.rpartition('_')[2]}")("x", Context())  # every request comes as a stream
            assert (said, written) == (("outer(inner(x))", []) if kind.endswith("unary") else ("outer(inner(None))", ["x", 2]))
            written.clear()
    assert wrapped == [(name, f"/a.B/{kind}", int, kind[0] == "s") for kind in kinds for name in ("inner", "outer")]
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
