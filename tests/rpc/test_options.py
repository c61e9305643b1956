"""The settings of gRPC at its three ends. gRPC ignores names that it does not know."""

import mmap
from pathlib import Path
from typing import Any

import pytest
from grpc._cython import cygrpc

from client_sdk._transport.channels import OPTIONS as SDK
from node_agent.transport.link import _OPTIONS as AGENT
from scheduler_service.rpc.server import _OPTIONS as SERVER


def test_they_are_settings_that_grpc_knows() -> None:
    with Path(cygrpc.__file__).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library:
        names = {name for name, _ in (*SDK, *AGENT, *SERVER)}
        assert [name for name in names if library.find(name.encode() + b"\0") < 0] == []


@pytest.mark.parametrize("caller", [SDK, AGENT])
def test_the_scheduler_permits_pings_as_often_as_callers_send_them(caller: Any) -> None:
    """Else it ends the connection after four of them ("too_many_pings"), and with it a watch in which nothing happens."""
    least = dict(SERVER)["grpc.http2.min_ping_interval_without_data_ms"]
    assert dict(caller)["grpc.keepalive_time_ms"] >= 2 * least
