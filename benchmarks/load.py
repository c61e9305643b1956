"""Many Submits at once, each an RPC of its own."""

import asyncio
from collections.abc import Sequence

import grpc.aio
from ebb.v1 import job_pb2, scheduler_pb2

WINDOW = 256
"""Submits in flight."""


async def submit_all(address: str, command: Sequence[str], count: int) -> list[int]:
    """Submits `count` jobs of one CPU and returns their ids. Raises what any of the calls raises."""
    spec = job_pb2.JobSpec(command=command, resources=job_pb2.Resources(cpu_milli=1000, memory_mib=64))
    numbers = iter(range(count))
    ids: list[int] = []
    async with grpc.aio.insecure_channel(address) as channel:
        submit = channel.unary_unary(
            "/ebb.v1.Scheduler/Submit",
            request_serializer=scheduler_pb2.SubmitRequest.SerializeToString,
            response_deserializer=scheduler_pb2.SubmitResponse.FromString,
        )

        async def worker() -> None:
            for number in numbers:
                answer = await submit(scheduler_pb2.SubmitRequest(spec=spec, request_id=f"bench-{number}"))
                ids.append(answer.job.id)

        async with asyncio.TaskGroup() as workers:
            for _ in range(WINDOW):
                workers.create_task(worker())
    if len(set(ids)) != count:
        raise RuntimeError(f"{count} submits made {len(set(ids))} jobs")
    return ids
