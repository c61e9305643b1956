"""What every cluster does, whoever asks: one list of behaviours, which the fake and the service are both held to.

They are written against `AsyncClient`; `Awaited` gives `Client` its shape. A behaviour leaves no live job behind, and knows
of other jobs only that there may be some.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest

import client_sdk as sdk
from client_sdk import AsyncClient, Client, Job, JobEventKind, JobReason, JobState

CPUS = 20
"""Of the one node that every world has; it has no devices."""
LIMIT = 60.0
FAIL = ("sh", "-c", "exit 3")
KILLED = ("sh", "-c", "kill -9 $$")
HELLO = ("sh", "-c", "echo hello")
MISSING = ("/no/such/program",)
SLEEP = ("sleep", "600")


class Awaited:
    """A `Client` with the methods of an AsyncClient: each call in a thread."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        async def iterate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            iterator: Any = await asyncio.to_thread(method, *args, **kwargs)
            try:
                while (item := await asyncio.to_thread(next, iterator, None)) is not None:
                    yield item
            finally:
                await asyncio.to_thread(iterator.close)

        return iterate if name in ("list", "watch", "logs", "runs") else call


def awaited(client: Client) -> AsyncClient:
    return cast(AsyncClient, Awaited(client))


@dataclass(frozen=True, slots=True)
class World:
    """A cluster with one node of 20 CPUs and no devices, and a client of it."""

    client: AsyncClient
    preempt: Callable[[Job, Job], Awaitable[None]]
    """Sees to it that the first job is preempted for the second, which waits. The service does that by itself."""

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Job]:
        """A job that runs, and is cancelled afterwards."""
        job = await self.client.submit(SLEEP, **options)
        try:
            yield await self.until(job, lambda now: now.state is JobState.RUNNING)
        finally:
            await self.client.cancel(job.id)
            await self.client.wait(job, LIMIT)

    @asynccontextmanager
    async def running_after_preemption(self, victim: Job) -> AsyncIterator[Job]:
        """A trial that runs where the victim ran, and is cancelled afterwards."""
        trial = await self.client.submit(SLEEP, job_class="trial", cpus=CPUS)
        try:
            await self.preempt(victim, trial)
            yield await self.until(trial, lambda now: now.state is JobState.RUNNING)
        finally:
            await self.client.cancel(trial.id)
            await self.client.wait(trial, LIMIT)

    async def until(self, job: Job, holds: Callable[[Job], bool]) -> Job:
        async with aclosing(self.client.watch(job.id, timeout=LIMIT)) as updates:
            async for update in updates:
                for seen in update.jobs:
                    if holds(seen):
                        return seen
        raise AssertionError(f"job {job.id} ended without that")

    async def kinds(self, job: Job) -> list[JobEventKind]:
        return [event.kind for event in await self.client.story(job.id)]


Behaviour = Callable[[World], Awaitable[None]]
BEHAVIOURS: list[Behaviour] = []


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS.append(function)
    return function


# ---- jobs and their ends -----------------------------------------------------------------------------------------------


@behaviour
async def a_submitted_job_is_answered_alive(world: World) -> None:
    job = await world.client.submit(
        ["true"],
        name="n 1",
        cpus=0.5,
        memory="2GiB",
        env={"A": "b"},
        export=["PATH", "SET=yes", "A=c"],
        working_directory="/tmp",
        job_class="trial",
        grace=1.5,
    )
    assert job.spec == sdk.JobSpec(
        command=("true",),
        resources=sdk.Resources(cpus=0.5, memory_mib=2048),
        name="n 1",
        job_class=sdk.JobClass.TRIAL,
        environment={"A": "b", "SET": "yes"},
        inherited={"PATH": os.environ["PATH"]},
        working_directory="/tmp",
        grace_period=timedelta(seconds=1.5),
    )
    assert job.state in sdk.models.LIVE
    assert (bool(job.user), job.cancel_requested, job.end_time, job.preempted_for_trial) == (True, False, None, 0)
    assert job.submit_time is not None
    assert job.submit_time.tzinfo is UTC
    (task,) = (await world.client.wait(job, LIMIT)).tasks
    assert task.program is not None
    assert task.program.rpartition("/")[2] == "true"


@behaviour
async def what_is_inherited_makes_no_other_job_of_a_request(world: World) -> None:
    """A script that is run again from another shell means the same job."""
    job = await world.client.submit(["true"], export="PATH", request_id="from-a-shell")
    again = await world.client.submit(["true"], export="NONE", request_id="from-a-shell")
    assert (again.id, again.spec.inherited) == (job.id, job.spec.inherited)
    with pytest.raises(sdk.AlreadyExists):
        await world.client.submit(["true"], env={"A": "b"}, request_id="from-a-shell")
    await world.client.wait(job, LIMIT)


@behaviour
async def what_is_left_out_is_answered(world: World) -> None:
    spec = sdk.JobSpec(command=("true",), resources=sdk.Resources(), job_class=sdk.JobClass.UNSPECIFIED)
    job = await world.client.submit_spec(spec)
    assert job.spec.job_class is sdk.JobClass.BEST_EFFORT
    assert job.spec.grace_period == timedelta(seconds=30)
    again = await world.client.submit_spec(job.spec)
    assert (again.spec, again.id) == (job.spec, job.id + 1)
    await world.client.wait(job, LIMIT)
    await world.client.wait(again.id, LIMIT)


@behaviour
async def a_job_succeeds(world: World) -> None:
    job = await world.client.wait(await world.client.submit(["true"]), LIMIT)
    assert (job.state, job.reason, job.exit_code, job.exit_signal) == (JobState.SUCCEEDED, JobReason.EXITED, 0, 0)
    assert (job.run, job.devices, job.cause_job_id, job.reason_detail) == (1, (), None, "")
    assert job.node in [node.name for node in await world.client.nodes()]
    assert job.submit_time is not None
    assert job.start_time is not None
    assert job.end_time is not None
    assert job.submit_time <= job.start_time <= job.end_time
    assert job.log_path
    assert await world.client.get(job.id) == job


@behaviour
async def a_job_fails_with_its_exit_code(world: World) -> None:
    job = await world.client.wait(await world.client.submit(FAIL), LIMIT)
    assert (job.state, job.reason, job.exit_code, job.exit_signal) == (JobState.FAILED, JobReason.EXITED, 3, 0)


@behaviour
async def a_job_fails_by_a_signal(world: World) -> None:
    job = await world.client.wait(await world.client.submit(KILLED), LIMIT)
    assert (job.state, job.reason, job.exit_code, job.exit_signal) == (JobState.FAILED, JobReason.SIGNALLED, 0, 9)


@behaviour
async def a_command_that_is_not_there_fails_with_why(world: World) -> None:
    job = await world.client.wait(await world.client.submit(MISSING), LIMIT)
    assert (job.state, job.reason, job.exit_signal) == (JobState.FAILED, JobReason.LAUNCH_FAILED, 0)
    assert "/no/such/program" in job.reason_detail
    ended = (await world.client.story(job.id))[-1]
    assert (ended.kind, ended.reason, ended.text) == (JobEventKind.ENDED, JobReason.LAUNCH_FAILED, job.reason_detail)


@behaviour
async def the_story_tells_it_in_order(world: World) -> None:
    job = await world.client.wait(await world.client.submit(FAIL), LIMIT)
    story = await world.client.story(job.id)
    assert [e.kind for e in story] == [
        JobEventKind.SUBMITTED,
        JobEventKind.PLACED,
        JobEventKind.STARTED,
        JobEventKind.ENDED,
    ]
    assert {e.job_id for e in story} == {job.id}
    assert [(e.run, e.node) for e in story] == [(0, None)] + [(1, job.node)] * 3
    assert (story[-1].reason, story[-1].exit_code, story[-1].exit_signal) == (JobReason.EXITED, 3, 0)
    for earlier, later in pairwise(story):
        assert earlier.time is not None
        assert later.time is not None
        assert earlier.time <= later.time
        assert 0 < earlier.commit_no <= later.commit_no


@behaviour
async def logs_are_what_it_wrote(world: World) -> None:
    job = await world.client.submit(HELLO)
    assert [piece async for piece in world.client.logs(job.id, follow=True)] == ["hello\n"]
    for options in ({}, {"run": 1}, {"run": 1, "follow": True}):
        assert [piece async for piece in world.client.logs(job.id, **cast(Any, options))] == ["hello\n"]
    with pytest.raises(sdk.FailedPrecondition, match=f"job {job.id} is SUCCEEDED and had no run 2$") as caught:
        _ = [piece async for piece in world.client.logs(job.id, run=2)]
    assert (caught.value.reason, caught.value.metadata) == ("NOT_STARTED", {"job_id": str(job.id)})
    assert [piece async for piece in world.client.logs(job.id, run=2, follow=True)] == []
    with pytest.raises(sdk.NotFound, match="has no task 1") as gone:
        _ = [piece async for piece in world.client.logs(job.id, task=1)]
    assert (gone.value.reason, gone.value.metadata) == ("LOG_GONE", {"job_id": str(job.id), "run": "1"})


@behaviour
async def logs_of_a_running_job_end_where_they_end_now(world: World) -> None:
    async with world.running() as job:
        assert [piece async for piece in world.client.logs(job.id)] == []


@behaviour
async def a_job_that_could_not_be_started_wrote_nothing(world: World) -> None:
    job = await world.client.submit(MISSING)
    for follow in (True, False):
        assert [piece async for piece in world.client.logs(job.id, follow=follow)] == []


@behaviour
async def logs_wait_for_a_job_to_start(world: World) -> None:
    async with world.running(cpus=CPUS) as before:
        waiting, never = [await world.client.submit(HELLO, cpus=CPUS) for _ in range(2)]

        async def follow(job: Job) -> list[str]:
            return [piece async for piece in world.client.logs(job.id, follow=True)]

        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
            first, second = tasks.create_task(follow(waiting)), tasks.create_task(follow(never))
            await world.client.cancel(never.id)
            await asyncio.wait([second])
            assert not first.done()
            await world.client.cancel(before.id)
        assert (first.result(), second.result()) == (["hello\n"], [])
        await world.client.wait(waiting, LIMIT)


# ---- waiting and watching ----------------------------------------------------------------------------------------------


@behaviour
async def a_wait_gives_up_and_the_job_goes_on(world: World) -> None:
    async with world.running() as job:
        for timeout in (0, 0.2):
            with pytest.raises(sdk.DeadlineExceeded, match=f"job {job.id} is still RUNNING") as caught:
                await world.client.wait(job, timeout)
            assert caught.value.reason == "WAIT_TIMEOUT"
        assert (await world.client.get(job.id)).state is JobState.RUNNING
    assert (await world.client.wait(job, 0)).state is JobState.CANCELLED


@behaviour
async def a_watch_of_a_job_begins_with_a_snapshot_and_sees_the_end(world: World) -> None:
    job = await world.client.submit(["true"])
    updates = [update async for update in world.client.watch(job.id, timeout=LIMIT)]
    assert [update.snapshot for update in updates] == [True] + [False] * (len(updates) - 1)
    assert {seen.id for update in updates for seen in update.jobs} == {job.id}
    assert [u.commit_no for u in updates] == sorted({u.commit_no for u in updates})
    assert [seen.ended for update in updates for seen in update.jobs] == [False] * (len(updates) - 1) + [True]
    (only,) = [update async for update in world.client.watch(job.id, timeout=LIMIT)]
    assert (only.snapshot, only.jobs) == (True, updates[-1].jobs)


@behaviour
async def a_watch_of_all_sees_what_is_new(world: World) -> None:
    async with world.running() as before, aclosing(world.client.watch(timeout=LIMIT)) as updates:
        first = await anext(updates)
        assert first.snapshot
        assert before.id in [job.id for job in first.jobs]
        assert not any(job.ended for job in first.jobs)
        job = await world.client.submit(["true"])
        async for update in updates:
            assert not update.snapshot
            if any(seen.id == job.id and seen.ended for seen in update.jobs):
                break


@behaviour
async def a_watch_goes_on_after_a_commit(world: World) -> None:
    async with world.running() as job:
        async with aclosing(world.client.watch(job.id, timeout=LIMIT)) as updates:
            at = (await anext(updates)).commit_no
        await world.client.cancel(job.id)
        later = [update async for update in world.client.watch(job.id, after_commit=at, timeout=LIMIT)]
    assert not any(update.snapshot for update in later)
    assert all(update.commit_no > at for update in later)
    assert later[-1].jobs[-1].state is JobState.CANCELLED


@behaviour
async def a_watch_after_a_commit_of_the_future_begins_with_a_snapshot(world: World) -> None:
    job = await world.client.wait(await world.client.submit(["true"]), LIMIT)
    (update,) = [u async for u in world.client.watch(job.id, after_commit=2**40, timeout=LIMIT)]
    assert (update.snapshot, update.jobs) == (True, (job,))
    assert update.commit_no < 2**40


# ---- cancelling, queueing, preempting ----------------------------------------------------------------------------------


@behaviour
async def a_running_job_is_cancelled(world: World) -> None:
    async with world.running() as job:
        told = await world.client.cancel(job.id)
        assert (told.state, told.reason, told.cancel_requested) == (JobState.STOPPING, JobReason.CANCELLED, True)
        ended = await world.client.wait(job, LIMIT)
        assert (ended.state, ended.reason, ended.exit_signal) == (JobState.CANCELLED, JobReason.CANCELLED, 15)
        assert await world.client.cancel(job.id) == ended
        kinds = await world.kinds(job)
        assert kinds[-2:] == [JobEventKind.CANCEL_REQUESTED, JobEventKind.ENDED]


@behaviour
async def a_queued_job_waits_and_is_cancelled_at_once(world: World) -> None:
    async with world.running(cpus=CPUS):
        first, second = [await world.client.submit(["true"], cpus=CPUS) for _ in range(2)]
        assert [(j.state, j.run, j.node, j.log_path) for j in (first, second)] == [(JobState.QUEUED, 0, None, None)] * 2
        first = await world.client.get(first.id)
        assert (first.reason, first.cause_job_id) == (JobReason.NO_ROOM, None)
        assert (second.reason, second.cause_job_id) == (JobReason.BEHIND, first.id)
        with pytest.raises(sdk.FailedPrecondition, match=f"job {first.id} is QUEUED and has written nothing") as caught:
            _ = [piece async for piece in world.client.logs(first.id)]
        assert caught.value.reason == "NOT_STARTED"
        for job in (first, second):
            ended = await world.client.cancel(job.id)
            assert (ended.state, ended.reason, ended.run, ended.start_time) == (
                JobState.CANCELLED,
                JobReason.CANCELLED,
                0,
                None,
            )
            assert await world.kinds(job) == [JobEventKind.SUBMITTED, JobEventKind.CANCEL_REQUESTED, JobEventKind.ENDED]


@behaviour
async def a_queued_job_starts_when_there_is_room(world: World) -> None:
    async with world.running(cpus=CPUS):
        job = await world.client.submit(["true"], cpus=CPUS)
        assert job.state is JobState.QUEUED
    assert (await world.client.wait(job, LIMIT)).state is JobState.SUCCEEDED


@behaviour
async def an_ended_job_stays_as_it_is(world: World) -> None:
    job = await world.client.wait(await world.client.submit(["true"]), LIMIT)
    assert await world.client.cancel(job.id) == job


@behaviour
async def a_preempted_job_is_queued_for_its_trial_and_returns(world: World) -> None:
    async with world.running(cpus=CPUS, grace=20) as victim:
        async with world.running_after_preemption(victim) as trial:
            left = await world.client.get(victim.id)
            assert (left.state, left.reason, left.cause_job_id) == (JobState.QUEUED, JobReason.PREEMPTED, trial.id)
            assert (left.preempted_for_trial, left.run, left.cancel_requested) == (1, 1, False)
            kinds = await world.kinds(victim)
            assert kinds[-3:] == [JobEventKind.PREEMPTED, JobEventKind.VACATED, JobEventKind.REQUEUED]
            assert {e.cause_job_id for e in (await world.client.story(victim.id))[-3:]} == {trial.id}
        back = await world.until(victim, lambda job: job.state is JobState.RUNNING)
        assert (back.run, back.reason, back.cause_job_id, back.start_time) == (
            2,
            JobReason.UNSPECIFIED,
            None,
            victim.start_time,
        )


# ---- asking twice, asking wrongly --------------------------------------------------------------------------------------


@behaviour
async def a_request_id_names_one_job(world: World) -> None:
    first = await world.client.submit(["true"])
    request_id = f"contract-{first.id}"
    job = await world.client.submit(["true"], name="once", request_id=request_id)
    assert (await world.client.submit(["true"], name="once", request_id=request_id)).id == job.id
    with pytest.raises(sdk.AlreadyExists, match=f"already used for job {job.id}") as caught:
        await world.client.submit(["true"], name="other", request_id=request_id)
    assert (caught.value.reason, caught.value.metadata) == ("REQUEST_ID_REUSED", {"job_id": str(job.id)})
    ended = await world.client.wait(job, LIMIT)
    assert await world.client.submit(["true"], name="once", request_id=request_id) == ended
    with pytest.raises(sdk.AlreadyExists):
        await world.client.submit(["true"], name="other", request_id=request_id)
    await world.client.wait(first, LIMIT)


@behaviour
async def a_job_is_named_by_itself_or_by_its_id(world: World) -> None:
    ended = await world.client.wait(await world.client.submit(["true"]), LIMIT)
    assert await world.client.get(ended) == await world.client.get(ended.id) == ended
    assert [update.jobs async for update in world.client.watch(ended)] == [(ended,)]
    by_itself = [piece async for piece in world.client.logs(ended)]
    assert by_itself == [piece async for piece in world.client.logs(ended.id)]


@behaviour
async def an_unknown_job_is_not_found(world: World) -> None:
    client, unknown = world.client, 10**12
    for ask in (client.get, client.cancel, client.story, client.wait):
        with pytest.raises(sdk.NotFound, match=f"there is no job {unknown}") as caught:
            await ask(unknown)
        assert (caught.value.reason, caught.value.metadata) == ("NO_SUCH_JOB", {"job_id": str(unknown)})
    for watch in (client.watch(unknown), client.logs(unknown), client.logs(unknown, follow=True)):
        with pytest.raises(sdk.NotFound):
            await anext(cast(AsyncIterator[Any], watch))


@behaviour
async def a_broken_rule_is_named(world: World) -> None:
    client = world.client
    cases: list[tuple[str, str, Awaitable[Any]]] = [
        ("spec.command", "repeated.min_items", client.submit([])),
        ("spec.command", "string.pattern", client.submit(["a\0b"])),
        ("spec.name", "string.max_len", client.submit(["true"], name="x" * 129)),
        ("spec.name", "string.pattern", client.submit(["true"], name="-x")),
        ("spec.name", "string.pattern", client.submit(["true"], name="x\n")),
        ("spec.environment", "string.pattern", client.submit(["true"], env={"1": ""})),
        ("spec.environment", "environment.reserved", client.submit(["true"], env={"EBB_X": ""})),
        ("spec.working_directory", "string.pattern", client.submit(["true"], working_directory="here")),
        ("spec.resources.cpu_milli", "int64.gte_lte", client.submit(["true"], cpus=-1)),
        ("spec.resources.devices", "int64.gte_lte", client.submit(["true"], devices=1025)),
        ("spec.grace_period", "duration.gte_lte", client.submit(["true"], grace="25h")),
        ("request_id", "string.pattern", client.submit(["true"], request_id="a b")),
        ("job_id", "int64.gte", client.get(0)),
        ("job_id", "int64.gte", client.cancel(-1)),
        ("job_id", "int64.gte", client.story(0)),
        ("job_id", "int64.gte", anext(client.watch(-1))),
        ("job_id", "int64.gte", anext(client.logs(0))),
        ("run", "int32.gte", anext(client.logs(1, run=-1))),
        ("task", "int32.gte", anext(client.logs(1, task=-1, follow=True))),
        ("after_commit", "int64.gte", anext(client.watch(after_commit=-1))),
        ("page_size", "int32.gte_lte", anext(client.list(page_size=1001))),
    ]
    for field, rule, asked in cases:
        with pytest.raises(sdk.InvalidArgument, match=rf"^{field}: ") as caught:
            await asked
        assert caught.value.reason == "INVALID_FIELD"
        assert caught.value.metadata == {"field": field, "rule": rule}


@behaviour
async def a_job_that_fits_nowhere_is_refused(world: World) -> None:
    for too_much in ({"cpus": CPUS + 1}, {"devices": 1}, {"memory": "100TiB"}):
        with pytest.raises(sdk.FailedPrecondition, match="no node of this cluster has") as caught:
            await world.client.submit(["true"], **cast(Any, too_much))
        assert caught.value.reason == "NO_NODE_LARGE_ENOUGH"


# ---- lists -------------------------------------------------------------------------------------------------------------


@behaviour
async def lists_are_newest_first_over_pages(world: World) -> None:
    async with world.running() as live:
        jobs = [await world.client.wait(await world.client.submit(command), LIMIT) for command in (["true"], FAIL, ["true"])]
        ended = [job.id for job in reversed(jobs)]
        for size in (1, 2, 1000):
            found = [job async for job in world.client.list(page_size=size)]
            ids = [job.id for job in found]
            assert ids == sorted(set(ids), reverse=True)
            assert ids[:4] == [*ended, live.id]
            assert found[:3] == jobs[::-1]
        succeeded = [job async for job in world.client.list(states=[JobState.SUCCEEDED], page_size=1)]
        assert {job.state for job in succeeded} == {JobState.SUCCEEDED}
        assert [job.id for job in succeeded[:2]] == [ended[0], ended[2]]
        page = await world.client.list_page(states=[JobState.SUCCEEDED], page_size=1)
        assert (page.jobs, page.more) == (tuple(succeeded[:1]), len(succeeded) - 1)
        rest = await world.client.list_page(states=[JobState.SUCCEEDED], page_token=page.next_page_token)
        assert (rest.jobs, rest.more, rest.next_page_token) == (tuple(succeeded[1:]), 0, "")
        running = [job.id async for job in world.client.list(states=[JobState.RUNNING, JobState.STARTING])]
        assert running == [live.id]
        assert [job.id async for job in world.client.list(states=[JobState.UNREACHABLE])] == []


@behaviour
async def jobs_are_listed_by_user_and_name(world: World) -> None:
    name = f"of-{uuid.uuid4().hex}"
    job = await world.client.submit(["true"], name=name)
    assert await world.client.wait(job, LIMIT)

    async def ids(**only: Any) -> list[int]:
        return [found.id async for found in world.client.list(**only)]

    assert await ids(name=name) == await ids(name=name, user=job.user, mine=True) == [job.id]
    assert await ids(name=name[:-1]) == await ids(user=name) == await ids(user=name, mine=True) == []
    assert await ids(user=job.user) == await ids(mine=True) == await ids()
    assert await ids(user=job.user, states=[JobState.FAILED], name=name) == []
    with pytest.raises(sdk.InvalidArgument, match="the list cannot be asked for"):
        await anext(world.client.list(user=7))  # type: ignore[arg-type]  # as in a notebook


@behaviour
async def jobs_of_a_virtual_cluster_that_never_was_are_not_found(world: World) -> None:
    with pytest.raises(sdk.NotFound, match="there is no virtual cluster 'vision'; there are: none") as caught:
        await anext(world.client.list(vc="vision"))
    assert (caught.value.reason, caught.value.metadata) == ("NO_SUCH_VC", {"vc": "vision"})


@behaviour
async def nodes_show_what_is_free(world: World) -> None:
    (idle,) = await world.client.nodes()
    assert (idle.state, idle.capacity.cpus, idle.capacity.devices) == (sdk.NodeState.UP, CPUS, 0)
    assert (idle.free, idle.earmarked, idle.devices) == (idle.capacity, sdk.Resources(), ())
    assert idle.address
    assert idle.agent_version
    assert idle.state_time is not None
    async with world.running(cpus=2.5, memory="3GiB") as job:
        (busy,) = await world.client.nodes()
        assert job.node == busy.name == idle.name
        assert busy.capacity == idle.capacity
        assert busy.free == sdk.Resources(cpus=CPUS - 2.5, memory_mib=idle.free.memory_mib - 3 * 1024)
    found = await world.client.node(idle.name)
    assert found == idle
    assert found.observations is None  # its devices, if it had some, would be simulated
