"""Many Submits at once, each an RPC of its own; or one after another at a pace."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc.aio
from ebb.v1 import job_pb2, scheduler_pb2

WINDOW = 256
"""Submits in flight."""


class Answer(NamedTuple):
    """How one submit went."""

    code: grpc.StatusCode
    seconds: float
    """From when it was due."""


async def submit_all(
    address: str, command: Sequence[str], count: int, devices: int = 0, prefix: str = "bench", window: int = WINDOW
) -> list[int]:
    """Submits `count` jobs of one CPU and returns their ids. Raises what any of the calls raises.

    `prefix`: the beginning of their request_ids.
    """
    spec = _spec(command, devices)
    numbers = iter(range(count))
    ids: list[int] = []
    async with _submitting(address) as submit:

        async def worker() -> None:
            for number in numbers:
                answer = await submit(scheduler_pb2.SubmitRequest(spec=spec, request_id=f"{prefix}-{number}"))
                ids.append(answer.job.id)

        async with asyncio.TaskGroup() as workers:
            for _ in range(window):
                workers.create_task(worker())
    if len(set(ids)) != count:
        raise RuntimeError(f"{count} submits made {len(set(ids))} jobs")
    return ids


class Pacer:
    """Submits at a fixed rate, whether or not the earlier ones are answered, and asks once only. Use as an async context."""

    def __init__(self, address: str, per_second: float, devices: int = 0, prefix: str = "paced") -> None:
        self.answers: list[Answer] = []
        self._address, self._interval, self._spec, self._prefix = address, 1 / per_second, _spec(["true"], devices), prefix

    async def __aenter__(self) -> "Pacer":
        self._pacing = asyncio.create_task(self._pace())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Once those that were sent are answered."""
        self._stopping.set()
        await self._pacing

    async def _pace(self) -> None:
        self._stopping = asyncio.Event()
        async with _submitting(self._address) as submit, asyncio.TaskGroup() as calls:
            due = time.monotonic()
            while not self._stopping.is_set():
                calls.create_task(self._submit(submit, due))
                due += self._interval
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _submit(self, submit: Any, due: float) -> None:
        request = scheduler_pb2.SubmitRequest(spec=self._spec, request_id=f"{self._prefix}-{due}")
        call = submit(request, timeout=30)
        self.answers.append(Answer(await call.code(), time.monotonic() - due))


def _spec(command: Sequence[str], devices: int) -> job_pb2.JobSpec:
    return job_pb2.JobSpec(command=command, resources=job_pb2.Resources(cpu_milli=1000, memory_mib=64, devices=devices))


@asynccontextmanager
async def _submitting(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel.unary_unary(
            "/ebb.v1.Scheduler/Submit",
            request_serializer=scheduler_pb2.SubmitRequest.SerializeToString,
            response_deserializer=scheduler_pb2.SubmitResponse.FromString,
        )
