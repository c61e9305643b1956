"""What is too large for one message goes in pieces, and arrives whole."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from node_agent.transport.convert_pieces import LARGEST_PIECE, pieces
from scheduler_service.rpc.chunking import LARGEST_WHOLE, put_together
from scheduler_service.rpc.interceptors import InvalidArgument
from scheduler_service.rpc.receiving import LARGEST_MESSAGE


def runs(count: int, path: int) -> list[pb.RunStatus]:
    return [pb.RunStatus(job_id=i + 1, run=1, phase=pb.RUN_PHASE_RUNNING, log_path="/" + "x" * path) for i in range(count)]


def hello(count: int = 0, path: int = 5, devices: int = 0) -> pb.ConnectRequest:
    return pb.ConnectRequest(
        hello=pb.Hello(
            node="n1",
            boot_id="b",
            capacity=job_pb2.Resources(cpu_milli=1000, devices=devices),
            levels=["socket", "switch"],
            devices=[cluster_pb2.Device(index=i, uuid=f"u{i}") for i in range(devices)],
            labels={"zone": "a"},
            runs=runs(count, path),
        )
    )


def observations(count: int) -> pb.ConnectRequest:
    return pb.ConnectRequest(
        observations=pb.Observations(
            devices=[cluster_pb2.DeviceObservation(index=i, memory_used_mib=i) for i in range(count)],
            steps=[job_pb2.RunSteps(job_id=i + 1, run=1, step=i) for i in range(count)],
            mini_batches=[job_pb2.MiniBatch(job_id=i + 1, run=1, time=Duration(nanos=5)) for i in range(count)],
        )
    )


def reports(count: int) -> pb.ConnectRequest:
    exits = [pb.Report(sequence=i + 1, job_id=1, run=1, exited=pb.RunExited(exit_code=1)) for i in range(count)]
    return pb.ConnectRequest(reports=pb.Reports(reports=exits))


messages = st.one_of(
    st.builds(hello, st.integers(0, 30), st.integers(0, 50), st.integers(0, 8)),
    st.builds(observations, st.integers(0, 30)),
    st.builds(reports, st.integers(0, 30)),
    st.just(pb.ConnectRequest(heartbeat=pb.Heartbeat())),
)


def received(sent: list[pb.ConnectRequest], largest: int) -> list[pb.ConnectRequest]:
    async def stream() -> AsyncIterator[pb.ConnectRequest]:
        for message in sent:
            for piece in pieces(message.SerializeToString(), largest):
                yield pb.ConnectRequest.FromString(piece)

    async def collect() -> list[pb.ConnectRequest]:
        return [message async for message in put_together(stream())]

    return asyncio.run(collect())


@given(st.lists(messages, max_size=4), st.integers(1, 2000))
def test_what_is_put_together_is_what_was_sent(sent: list[pb.ConnectRequest], largest: int) -> None:
    assert received(sent, largest) == sent


@given(messages, st.integers(600, 2000))
def test_a_piece_is_no_larger_than_it_may_be(message: pb.ConnectRequest, largest: int) -> None:
    assert all(len(piece) <= largest for piece in pieces(message.SerializeToString(), largest))


def test_the_largest_hello_that_its_rules_permit_fits() -> None:
    whole = hello(count=100_000, path=200, devices=1024)
    sent = list(pieces(whole.SerializeToString()))
    assert len(sent) > 20
    assert max(map(len, sent)) <= LARGEST_PIECE < LARGEST_MESSAGE
    assert received([whole], LARGEST_PIECE) == [whole]


def refusal(*sent: pb.ConnectRequest) -> str:
    async def stream() -> AsyncIterator[pb.ConnectRequest]:
        for message in sent:
            yield message

    async def drain() -> None:
        async for _ in put_together(stream()):
            pass

    with pytest.raises(InvalidArgument) as refused:
        asyncio.run(drain())
    return str(refused.value)


def test_pieces_of_several_messages_are_refused() -> None:
    first = hello()
    first.more = True
    assert refusal(first, reports(1)) == "more: the pieces of a message are of one kind"


def test_a_message_that_never_ends_is_refused() -> None:
    piece = hello(count=3000, path=300)
    piece.more = True
    assert "have at most" in refusal(*([piece] * (LARGEST_WHOLE // piece.ByteSize() + 1)))
