"""More of the contract: what users ask of their jobs besides submit and cancel. Importing it adds to BEHAVIOURS."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import client_sdk as sdk
from client_sdk import DependencyKind, JobEventKind, JobReason, JobState, TaskGroup
from tests.sdk.contract import CPUS, FAIL, KILLED, LIMIT, SLEEP, World, behaviour

# ---- suspending, holding, requeueing -----------------------------------------------------------------------------------


@behaviour
async def a_running_job_is_suspended_and_resumed(world: World) -> None:
    async with world.running(cpus=CPUS) as job:
        told = await world.client.suspend(job)
        assert (told.state, told.reason, told.suspend_requested) == (JobState.STOPPING, JobReason.SUSPENDED, True)
        assert told.operation is not None
        assert (told.operation.kind, told.operation.phase) == (sdk.OperationKind.VACATE, sdk.OperationPhase.SAVING)
        aside = await world.until(job, lambda now: now.state is JobState.SUSPENDED)
        assert (aside.reason, aside.run, aside.ended, aside.operation) == (JobReason.SUSPENDED, 1, False, None)
        (run,) = [run async for run in world.client.runs(job)]
        assert [(one.kind.name, one.phase.name) for one in run.operations] == [("VACATE", "SAVING")]
        assert await world.client.suspend(job) == aside
        (blocker,) = (await world.client.explain(job)).blockers
        assert blocker.reason is JobReason.SUSPENDED
        other = await world.client.submit(["true"], cpus=CPUS)
        assert (await world.client.wait(other, LIMIT)).state is JobState.SUCCEEDED, "its room is free"
        again = await world.client.resume(job.id)
        assert again.state in (JobState.QUEUED, JobState.STARTING)
        assert not again.suspend_requested
        back = await world.until(job, lambda now: now.state is JobState.RUNNING)
        assert (back.run, back.reason, back.start_time) == (2, JobReason.UNSPECIFIED, job.start_time)
        kinds = await world.kinds(job)
        assert kinds[3:] == [
            JobEventKind.SUSPEND_REQUESTED,
            JobEventKind.SUSPENDED,
            JobEventKind.RESUMED,
            JobEventKind.REQUEUED,
            JobEventKind.PLACED,
            JobEventKind.STARTED,
        ]


@behaviour
async def a_suspended_job_is_cancelled_at_once(world: World) -> None:
    async with world.running() as job:
        await world.client.suspend(job)
        await world.until(job, lambda now: now.state is JobState.SUSPENDED)
        assert (await world.client.cancel(job)).state is JobState.CANCELLED


@behaviour
async def a_held_job_waits_for_its_release(world: World) -> None:
    async with world.running(cpus=CPUS) as running:
        job, behind = [await world.client.submit(["true"], cpus=CPUS) for _ in range(2)]
        for _ in range(2):
            held = await world.client.hold(job)
            assert (held.state, held.reason, held.held) == (JobState.QUEUED, JobReason.HELD, True)
        (blocker,) = (await world.client.explain(job)).blockers
        assert blocker.reason is JobReason.HELD
        await world.client.cancel(running)
        assert (await world.client.wait(behind, LIMIT)).state is JobState.SUCCEEDED, "it is not in its way"
        assert (await world.client.get(job.id)).state is JobState.QUEUED
        assert not (await world.client.release(job)).held
        assert (await world.client.wait(job, LIMIT)).state is JobState.SUCCEEDED
        kinds = await world.kinds(job)
        assert kinds[:3] == [JobEventKind.SUBMITTED, JobEventKind.HELD, JobEventKind.RELEASED]


@behaviour
async def a_running_job_is_requeued(world: World) -> None:
    async with world.running() as job:
        told = await world.client.requeue(job)
        assert (told.state, told.reason) == (JobState.STOPPING, JobReason.REQUEUED)
        back = await world.until(job, lambda now: now.state is JobState.RUNNING and now.run == 2)
        assert (back.retries, back.preempted_for_trial) == (0, 0)
        kinds = await world.kinds(job)
        assert kinds[3:6] == [JobEventKind.REQUEUE_REQUESTED, JobEventKind.VACATED, JobEventKind.REQUEUED]


@behaviour
async def steps_are_skipped_from_the_next_run_on(world: World) -> None:
    client = world.client
    async with world.running() as job:
        assert job.skip_steps == 0
        assert (await client.update(job, skip_steps=700)).skip_steps == 700
        assert (await client.get(job.id)).skip_steps == 700
        assert (await client.story(job.id))[-1].text == "its next launch skips the steps up to 700"
        assert (await client.update(job, skip_steps=0)).skip_steps == 0
        with pytest.raises(sdk.InvalidArgument):
            await client.update(job, skip_steps=-1)


@behaviour
async def a_grace_period_is_changed(world: World) -> None:
    client = world.client
    async with world.running() as before:
        asked = {"after_ok": [before.id], "checkpoint_signal": "USR1@10", "request_id": f"grace-{before.id}"}
        job = await client.submit(["true"], grace="1m", **asked)
        assert (job.spec.grace_period, job.grace_follows) == (timedelta(minutes=1), False)
        assert (await client.update(job, grace="40s")).spec.grace_period == timedelta(seconds=40)
        assert (await client.submit(["true"], grace="1m", **asked)).id == job.id
        told = await client.update(job, grace="auto")
        assert (told.spec.grace_period, told.grace_follows, told.grace_wanted) == (timedelta(seconds=30), True, None)
        with pytest.raises(sdk.FailedPrecondition) as refused:
            await client.update(job, grace=9)
        assert refused.value.reason == "GRACE_TOO_SHORT"
        await client.cancel(job)
    assert (await client.submit(["true"], grace="auto")).grace_follows


@behaviour
async def an_elastic_job_is_resized(world: World) -> None:
    client = world.client
    async with world.running(tasks=1, min_tasks=1, max_tasks=2) as job:
        told = await client.resize(job, 2)
        assert (told.state, told.reason, told.resize_to) == (JobState.STOPPING, JobReason.RESIZED, 2)
        back = await world.until(job, lambda now: now.state is JobState.RUNNING and now.run == 2)
        assert (len(back.tasks), back.spec.task_groups[0].count, back.resize_to, back.retries) == (2, 2, 0, 0)
        assert back.operation is None
        phases = {run.run: [(one.kind.name, one.phase.name) for one in run.operations] async for run in client.runs(job)}
        assert phases == {1: [("RESIZE", "SAVING")], 2: [("RESIZE", "WAITING"), ("RESIZE", "STARTING")]}
        (line,) = [event for event in await client.story(job.id) if event.kind is JobEventKind.RESIZED]
        assert line.text.startswith("it has 2 tasks now: stopped in ")
        updated = [event for event in await client.story(job.id) if event.kind is JobEventKind.UPDATED]
        assert [(event.text, event.reason) for event in updated] == [("tasks 1 -> 2", JobReason.RESIZED)]
        with pytest.raises(sdk.FailedPrecondition, match="has 1 to 2 tasks, and not 3") as caught:
            await client.resize(job, 3)
        bounds = {"job_id": str(job.id), "min_tasks": "1", "max_tasks": "2"}
        assert (caught.value.reason, caught.value.metadata) == ("TASKS_OUT_OF_BOUNDS", bounds)
    fixed = await client.submit(["true"])
    with pytest.raises(sdk.FailedPrecondition) as refused:
        await client.resize(fixed, 2)
    assert refused.value.reason in ("NOT_ELASTIC", "JOB_ENDED")


@behaviour
async def a_running_job_migrates(world: World) -> None:
    client = world.client
    names = sorted(node.name for node in await client.nodes())
    async with world.running() as job:
        with pytest.raises(sdk.NotFound) as unknown:
            await client.migrate(job, "nowhere")
        assert unknown.value.reason == "NO_SUCH_NODE"
        with pytest.raises(sdk.InvalidArgument, match="name the node"):
            await client.migrate(job)
        with pytest.raises(sdk.InvalidArgument, match="devices of 2 nodes are named, and 1 nodes"):
            await client.migrate(job, names[0], devices=[[0], [1]])
        with pytest.raises(sdk.FailedPrecondition) as wrong:
            await client.migrate(job, *names, *names)
        assert wrong.value.reason == "WRONG_NUMBER_OF_PLACES"
        here = (await client.get(job)).node
        assert (await client.migrate(job, here)).run == 1, "it is there"
    ended = await client.submit(["true"])
    await world.until(ended, lambda now: now.ended)
    with pytest.raises(sdk.EbbError):
        await client.migrate(ended, names[0])


@behaviour
async def bounds_of_an_elastic_job_that_cannot_be_are_refused(world: World) -> None:
    for options, wrong in (
        ({"tasks": 3, "max_tasks": 2}, "min_tasks=1, tasks=3 and max_tasks=2 are not in order"),
        ({"max_tasks": 2}, "an elastic job has tasks that are alike"),
    ):
        with pytest.raises(sdk.InvalidArgument, match=wrong):
            await world.client.submit(["true"], **options)  # type: ignore[arg-type]


@behaviour
async def a_part_of_a_device_that_cannot_be_is_refused(world: World) -> None:
    spec = sdk.JobSpec(command=("true",), resources=sdk.Resources(cpus=1, memory_mib=64, devices=1))
    sliced, packed = sdk.ShareMode.SLICED, sdk.ShareMode.PACKED
    two = replace(spec.resources, devices=2)
    for wrong, field, rule in (
        (replace(spec, share=sliced), "spec.gpu_fraction_ppm", "share.fraction"),
        (replace(spec, share=packed), "spec.share", "share.part"),
        (replace(spec, gpu_fraction_ppm=1_000_000), "spec.gpu_fraction_ppm", "int32.gte_lte"),
        (replace(spec, gpu_fraction_ppm=5, resources=two), "spec.resources.devices", "share.one_device"),
        (replace(spec, gpu_memory_mib=5, resources=sdk.Resources(cpus=1)), "spec.resources.devices", "share.one_device"),
        (replace(spec, gpu_fraction_ppm=5, task_groups=(TaskGroup(2, devices=1),)), "spec.task_groups", "share.one_task"),
        (
            replace(spec, gpu_fraction_ppm=5, alternatives=(sdk.Configuration(resources=two),)),
            "spec.alternatives",
            "share.one_configuration",
        ),
    ):
        with pytest.raises(sdk.InvalidArgument) as refused:
            await world.client.submit_spec(wrong)
        assert refused.value.metadata == {"field": field, "rule": rule}
    with pytest.raises(sdk.FailedPrecondition) as nowhere:
        await world.client.submit(["true"], devices=0.5)
    assert nowhere.value.reason == "NO_NODE_LARGE_ENOUGH"
    with pytest.raises(sdk.FailedPrecondition) as nowhere:
        await world.client.submit(["true"], gpu_memory="1GiB")
    assert nowhere.value.reason == "NO_SUITABLE_NODE"


@behaviour
async def what_the_state_forbids_is_refused(world: World) -> None:
    client = world.client
    async with world.running(cpus=CPUS) as running:
        queued = await client.submit(["true"], cpus=CPUS)
        for ask, job, text in (
            (client.suspend, queued, "cannot be suspended; hold"),
            (client.resume, queued, "cannot be resumed"),
            (client.requeue, queued, "cannot be put back"),
            (client.hold, running, "cannot be held; suspend"),
            (client.resume, running, "cannot be resumed"),
        ):
            with pytest.raises(sdk.FailedPrecondition, match=f"job {job.id} is {job.state.name} and {text}") as caught:
                await ask(job)
            assert (caught.value.reason, caught.value.metadata) == (
                "WRONG_STATE",
                {"job_id": str(job.id), "state": job.state.name},
            )
        await client.cancel(queued)
    for act in (client.suspend, client.resume, client.hold, client.release, client.requeue):
        with pytest.raises(sdk.FailedPrecondition, match=f"job {queued.id} has ended as CANCELLED") as over:
            await act(queued)
        assert over.value.reason == "JOB_ENDED"
        with pytest.raises(sdk.NotFound, match="there is no job"):
            await act(10**12)


# ---- priority, limits, retries -----------------------------------------------------------------------------------------


@behaviour
async def what_was_asked_for_is_shown(world: World) -> None:
    async with world.running(cpus=CPUS) as running:
        job = await world.client.submit(
            ["true"],
            cpus=CPUS,
            priority=7,
            time_limit="2h",
            estimate=timedelta(minutes=5),
            retries=2,
            retry_exit_codes=[9, 7],
            retry_exit_signals=[9],
            after_any=running,
        )
        assert (job.priority, job.time_limit, job.run_time, job.retries) == (7, timedelta(hours=2), timedelta(0), 0)
        assert (job.spec.priority, job.spec.time_limit) == (7, timedelta(hours=2))
        assert job.spec.estimate == timedelta(minutes=5)
        assert job.spec.retry == sdk.Retry(2, (7, 9), (9,))
        assert job.spec.dependencies == (sdk.Dependency(running.id, DependencyKind.AFTER_ANY),)
        changed = await world.client.update(job, priority=-3, time_limit=90)
        assert (changed.priority, changed.time_limit, changed.spec) == (-3, timedelta(seconds=90), job.spec)
        changed = await world.client.update(job, time_limit=0)
        assert (changed.priority, changed.time_limit) == (-3, None)
        assert JobEventKind.UPDATED in await world.kinds(job)
        await world.client.cancel(job)


@behaviour
async def a_job_with_whole_devices_shares_none(world: World) -> None:
    async with world.running(cpus=CPUS) as job:
        with pytest.raises(sdk.FailedPrecondition, match="cannot be made sliced: it asks for whole devices") as refused:
            await world.client.update(job, share="sliced")
        assert (refused.value.reason, refused.value.metadata["share"]) == ("CANNOT_SHARE", "SLICED")
        with pytest.raises(sdk.InvalidArgument, match="is unknown"):
            await world.client.update(job, share="some")  # type: ignore[arg-type]
        assert (await world.client.update(job, share="exclusive")).share_next is None


@behaviour
async def a_job_of_higher_priority_is_served_first(world: World) -> None:
    async with world.running(cpus=CPUS):
        first = await world.client.submit(["true"], cpus=CPUS)
        second = await world.client.submit(["true"], cpus=CPUS, priority=1)
        shown = await world.client.get(first.id)
        assert (shown.reason, shown.cause_job_id) == (JobReason.BEHIND, second.id)
        await world.client.update(first, priority=2)
        shown = await world.client.get(second.id)
        assert (shown.reason, shown.cause_job_id) == (JobReason.BEHIND, first.id)
    ended = [await world.client.wait(job, LIMIT) for job in (first, second)]
    assert ended[0].start_time is not None
    assert ended[1].start_time is not None
    assert ended[0].start_time <= ended[1].start_time


@behaviour
async def a_run_that_fails_is_tried_again(world: World) -> None:
    job = await world.client.wait(await world.client.submit(FAIL, retries=1), LIMIT)
    assert (job.state, job.exit_code, job.run, job.retries) == (JobState.FAILED, 3, 2, 1)
    story = await world.client.story(job.id)
    assert [(event.kind, event.run) for event in story[3:]] == [
        (JobEventKind.REQUEUED, 1),
        (JobEventKind.PLACED, 2),
        (JobEventKind.STARTED, 2),
        (JobEventKind.ENDED, 2),
    ]
    assert (story[3].reason, story[3].exit_code) == (JobReason.RETRYING, 3)


@behaviour
async def only_failures_that_are_named_are_tried_again(world: World) -> None:
    for command, options, runs in (
        (FAIL, {"retry_exit_codes": [4]}, 1),
        (FAIL, {"retry_exit_codes": [3]}, 2),
        (KILLED, {"retry_exit_codes": [3]}, 1),
        (KILLED, {"retry_exit_signals": [9]}, 2),
    ):
        job = await world.client.submit(command, retries=1, **options)  # type: ignore[arg-type]
        assert (await world.client.wait(job, LIMIT)).run == runs


# ---- dependencies ------------------------------------------------------------------------------------------------------


@behaviour
async def a_job_waits_for_those_that_it_depends_on(world: World) -> None:
    async with world.running() as running:
        after = await world.client.submit(["true"], after_any=[running])
        failed = await world.client.submit(["true"], after_failed=running.id)
        never = await world.client.submit(["true"], after_ok=running)
        last = await world.client.submit(["true"], after_ok=never)
        for job in (after, failed, never):
            assert (job.state, job.reason, job.cause_job_id) == (JobState.QUEUED, JobReason.DEPENDENCY, running.id)
        (blocker,) = (await world.client.explain(after)).blockers
        assert (blocker.reason, blocker.cause_job_id) == (JobReason.DEPENDENCY, running.id)
        await world.client.cancel(running)
        for job in (after, failed):
            assert (await world.client.wait(job, LIMIT)).state is JobState.SUCCEEDED
        for job, cause in ((never, running), (last, never)):
            ended = await world.client.wait(job, LIMIT)
            assert (ended.state, ended.reason) == (JobState.CANCELLED, JobReason.DEPENDENCY_NEVER)
            assert (ended.cause_job_id, ended.run) == (cause.id, 0)


@behaviour
async def a_dependency_on_what_has_ended_holds_or_is_refused(world: World) -> None:
    good = await world.client.wait(await world.client.submit(["true"]), LIMIT)
    job = await world.client.submit(["true"], after_ok=good)
    assert (await world.client.wait(job, LIMIT)).state is JobState.SUCCEEDED
    with pytest.raises(sdk.FailedPrecondition, match=f"job {good.id} has ended as SUCCEEDED") as never:
        await world.client.submit(["true"], after_failed=good)
    assert (never.value.reason, never.value.metadata) == ("DEPENDENCY_NEVER", {"job_id": str(good.id)})
    with pytest.raises(sdk.NotFound, match=f"there is no job {10**12}, which this was to wait for"):
        await world.client.submit(["true"], after_ok=10**12)


@behaviour
async def dependencies_are_changed(world: World) -> None:
    async with world.running() as running:
        first = await world.client.submit(["true"], after_any=running)
        second = await world.client.submit(["true"], after_ok=first)
        with pytest.raises(sdk.FailedPrecondition, match=f"job {first.id} would wait for itself") as caught:
            await world.client.update(first, dependencies=[sdk.Dependency(second.id)])
        assert caught.value.reason == "DEPENDENCY_CYCLE"
        with pytest.raises(sdk.FailedPrecondition, match=r"cannot be given other dependencies"):
            await world.client.update(running, dependencies=[sdk.Dependency(first.id)])
        await world.client.update(second, dependencies=[])
        assert (await world.client.wait(second, LIMIT)).state is JobState.SUCCEEDED
        await world.client.cancel(first)


# ---- arrays and gangs --------------------------------------------------------------------------------------------------


@behaviour
async def the_elements_of_an_array_are_jobs(world: World) -> None:
    array = await world.client.submit(["true"], array=3, array_at_once=1, name="sweep")
    assert array.spec.array == sdk.Array(3, 1)
    assert array.array is not None
    assert array.array.size == 3
    ended = await world.client.wait(array, LIMIT)
    assert (ended.state, ended.array, ended.run) == (
        JobState.SUCCEEDED,
        sdk.ArrayStatus(size=3, pending=0, live=0, succeeded=3, failed=0),
        0,
    )
    elements = [job async for job in world.client.list() if job.array_job_id == array.id]
    assert [job.array_index for job in elements] == [2, 1, 0]
    assert {(job.state, job.run, job.spec.name, job.spec.array) for job in elements} == {(JobState.SUCCEEDED, 1, "sweep", None)}
    assert ended.array_index is None


@behaviour
async def an_array_fails_with_its_elements(world: World) -> None:
    ended = await world.client.wait(await world.client.submit(FAIL, array=2), LIMIT)
    assert (ended.state, ended.reason, ended.exit_code) == (JobState.FAILED, JobReason.ELEMENTS_FAILED, 0)
    assert ended.array is not None
    assert ended.array.failed == 2


@behaviour
async def an_array_is_cancelled_with_its_elements(world: World) -> None:
    array = await world.client.submit(SLEEP, array=4, array_at_once=2)
    shown = await world.until(array, lambda now: now.array is not None and now.array.live == 2)
    assert shown.array == sdk.ArrayStatus(size=4, pending=2, live=2, succeeded=0, failed=0)
    with pytest.raises(sdk.FailedPrecondition, match=r"jobs: suspend those, and hold it to keep others from starting$"):
        await world.client.suspend(array)
    with pytest.raises(sdk.FailedPrecondition, match=r"it is an array, whose elements are jobs: put those back that run$"):
        await world.client.requeue(array)
    for follow in (False, True):
        with pytest.raises(sdk.FailedPrecondition, match="is an array: its elements are jobs of their own, and have the"):
            _ = [piece async for piece in world.client.logs(array.id, follow=follow)]
    await world.client.cancel(array)
    assert (await world.client.wait(array, LIMIT)).state is JobState.CANCELLED
    elements = [job async for job in world.client.list(page_size=10) if job.array_job_id == array.id]
    assert {job.state for job in elements} == {JobState.CANCELLED}
    assert len(elements) == 2


@behaviour
async def the_tasks_of_a_gang_are_placed_together(world: World) -> None:
    groups = [TaskGroup(2, cpus=1, memory="1GiB"), TaskGroup(1, cpus=2, memory=512, command=["sleep", "601"])]
    job = await world.client.submit(SLEEP, tasks=groups)
    try:
        assert job.spec.task_groups == tuple(groups)
        assert job.spec.resources == sdk.Resources(cpus=4, memory_mib=2560)
        placed = await world.until(job, lambda now: now.state is not JobState.QUEUED)
        assert [(task.rank, task.resources.cpus) for task in placed.tasks] == [(0, 1), (1, 1), (2, 2)]
        assert {task.node for task in placed.tasks} == {placed.node}
        (node,) = await world.client.nodes()
        assert node.free.cpus == CPUS - 4
    finally:
        await world.client.cancel(job)
        await world.client.wait(job, LIMIT)
    with pytest.raises(sdk.FailedPrecondition) as caught:
        await world.client.submit(SLEEP, tasks=[TaskGroup(1, cpus=CPUS + 1)])
    assert caught.value.reason == "NO_NODE_LARGE_ENOUGH"


@behaviour
async def a_job_starts_in_a_configuration_that_fits(world: World) -> None:
    other: sdk.Alternative = {"cpus": 2, "command": ["sleep", "602"], "env": {"A": "1"}, "estimate": "1h", "exclude_nodes": ()}
    async with world.running(cpus=CPUS - 4):
        job = await world.client.submit(SLEEP, cpus=CPUS, alternatives=[other])
        try:
            (alternative,) = job.spec.alternatives
            assert (alternative.resources.cpus, alternative.command) == (2, ("sleep", "602"))
            assert (alternative.environment, alternative.estimate) == ({"A": "1"}, timedelta(hours=1))
            assert [one.resources.cpus for one in job.spec.configurations] == [CPUS, 2]
            placed = await world.until(job, lambda now: now.state is not JobState.QUEUED)
            assert (placed.configuration, [task.resources.cpus for task in placed.tasks]) == (1, [2])
        finally:
            await world.client.cancel(job)
            await world.client.wait(job, LIMIT)


@behaviour
async def why_a_job_waits_is_told_for_each_of_its_configurations(world: World) -> None:
    async with world.running(cpus=CPUS - 1) as running:
        job = await world.client.submit(SLEEP, cpus=CPUS, alternatives=[{"cpus": 2}])
        why = await world.client.explain(job)
        assert [blocker.reason for blocker in why.blockers] == [JobReason.NO_ROOM] * 2
        assert [blocker.detail for blocker in why.blockers] == ["configuration 0", "configuration 1"]
        assert [blocker.need.cpus for blocker in why.blockers if blocker.need is not None] == [CPUS, 2]
        await world.client.cancel(job)
        seen = await world.client.preview(SLEEP, cpus=CPUS, alternatives=[{"cpus": 1}])
        assert (seen.starts, seen.job.configuration, [task.node for task in seen.tasks]) == (True, 1, [running.node])


@behaviour
async def a_configuration_that_nobody_can_have_is_refused(world: World) -> None:
    cases: list[tuple[sdk.Alternative, type[sdk.EbbError], str]] = [
        ({"cpus": 1}, sdk.InvalidArgument, "INVALID_FIELD"),
        ({"cpus": CPUS + 1}, sdk.FailedPrecondition, "NO_NODE_LARGE_ENOUGH"),
        ({"model": "K80"}, sdk.NotFound, "NO_SUCH_MODEL"),
        ({"nodes": "nowhere"}, sdk.NotFound, "NO_SUCH_NODE"),
        ({"node_labels": {"zone": "a"}}, sdk.FailedPrecondition, "NO_SUITABLE_NODE"),
    ]
    for wrong, kind, reason in cases:
        with pytest.raises(kind, match="configuration") as caught:
            await world.client.submit(["true"], cpus=1, alternatives=[wrong])
        assert caught.value.reason == reason
    with pytest.raises(sdk.InvalidArgument, match=r"alternative 1: .*some of: cpus"):
        await world.client.submit(["true"], alternatives=[{"gpu": 1}])  # type: ignore[typeddict-unknown-key]


# ---- nodes, explanations, previews -------------------------------------------------------------------------------------


@behaviour
async def nothing_is_placed_on_a_drained_node(world: World) -> None:
    (node,) = await world.client.nodes()
    async with world.running() as running:
        try:
            for reason in ("fan", "fan broken"):
                drained = await world.client.drain(node.name, reason=reason)
                assert drained.drain is not None
                assert (drained.drain.reason, bool(drained.drain.user)) == (reason, True)
                assert drained.drain.time is not None
            job = await world.client.submit(["true"])
            assert (await world.client.get(running.id)).state is JobState.RUNNING, "what runs there finishes"
            assert (await world.client.get(job.id)).state is JobState.QUEUED
            (blocker,) = (await world.client.explain(job)).blockers
            assert (blocker.reason, blocker.nodes, blocker.nodes_usable) == (JobReason.NO_ROOM, 1, 0)
            await world.client.drain(node.name, evict=True)
            assert (await world.client.node(node.name)).drain == drained.drain, "its reason stands"
            away = await world.until(running, lambda now: now.state is JobState.QUEUED)
            assert (away.reason, away.run) == (JobReason.NODE_DRAINED, 1)
            told = [e for e in await world.client.story(running) if e.kind is JobEventKind.REQUEUE_REQUESTED]
            assert [(e.reason, e.run, e.node, e.text) for e in told] == [(JobReason.NODE_DRAINED, 1, node.name, "fan broken")]
        finally:
            assert (await world.client.undrain(node.name)).drain is None
        assert (await world.client.wait(job, LIMIT)).state is JobState.SUCCEEDED
        await world.until(running, lambda now: now.state is JobState.RUNNING)


@behaviour
async def nodes_are_asked_for_by_name(world: World) -> None:
    client = world.client
    (node,) = await client.nodes()
    for ask in (client.node, client.drain, client.undrain, client.fence, client.delete_node):
        with pytest.raises(sdk.NotFound, match="there is no node nowhere") as caught:
            await ask("nowhere")
        assert (caught.value.reason, caught.value.metadata) == ("NO_SUCH_NODE", {"node": "nowhere"})
    with pytest.raises(sdk.FailedPrecondition, match=f"node {node.name} is up: only a silent node"):
        await client.fence(node.name)
    with pytest.raises(sdk.FailedPrecondition, match=f"node {node.name} is up: stop its agent first"):
        await client.delete_node(node.name)


@behaviour
async def a_job_that_waits_is_explained(world: World) -> None:
    async with world.running(cpus=CPUS - 2) as running:
        first = await world.client.submit(["true"], cpus=CPUS - 1)
        second = await world.client.submit(["true"], cpus=CPUS)
        why = await world.client.explain(first)
        assert (why.job.id, why.job.reason, why.ahead, why.ahead_job_ids) == (first.id, JobReason.NO_ROOM, 0, ())
        (blocker,) = why.blockers
        assert blocker.reason is JobReason.NO_ROOM
        assert (blocker.need, blocker.node) == (first.spec.resources, running.node)
        assert blocker.free is not None
        assert blocker.free.cpus == 2
        assert (blocker.nodes, blocker.nodes_usable, blocker.nodes_large_enough) == (1, 1, 1)
        assert why.estimate is not None
        assert (why.estimate.time, bool(why.estimate.basis)) == (None, True)
        behind = await world.client.explain(second.id)
        assert (behind.ahead, behind.ahead_job_ids) == (1, (first.id,))
        assert [b.reason for b in behind.blockers] == [JobReason.BEHIND, JobReason.NO_ROOM]
        assert behind.blockers[0].cause_job_id == first.id
        nothing = await world.client.explain(running)
        assert (nothing.blockers, nothing.job.state, nothing.preempted) == ((), JobState.RUNNING, None)
        for job in (first, second):
            await world.client.cancel(job)


@behaviour
async def there_are_no_shares_where_the_policy_does_not_go_by_usage(world: World) -> None:
    with pytest.raises(sdk.FailedPrecondition, match="does not go by usage, so that there are no shares") as caught:
        await world.client.shares()
    assert caught.value.reason == "NO_SHARES"
    with pytest.raises(sdk.FailedPrecondition) as caught:
        await world.client.shares("vision")
    assert caught.value.reason == "NO_VIRTUAL_CLUSTERS"


@behaviour
async def the_project_of_a_job_is_kept(world: World) -> None:
    job = await world.client.submit(["true"], project="vision-2")
    assert (await world.client.wait(job, LIMIT)).spec.project == "vision-2"
    with pytest.raises(sdk.InvalidArgument, match="project"):
        await world.client.submit(["true"], project="a/b")


@behaviour
async def a_checkpoint_signal_or_command_is_kept(world: World) -> None:
    by_signal = await world.client.submit(["true"], grace="2m", checkpoint_signal="sigusr1@60")
    assert (await world.client.get(by_signal)).spec.checkpoint_signal == "USR1@60"
    by_command = await world.client.submit(["true"], checkpoint_command="./save.sh $EBB_PID")
    assert (await world.client.get(by_command)).spec.checkpoint_command == "./save.sh $EBB_PID"
    for options, said in (
        ({"checkpoint_signal": "USR1@60", "grace": 30}, "60 s to save are more than there is: the grace period is 30 s"),
        ({"checkpoint_signal": "USR1", "grace": 0}, "which leaves no time to save"),
        ({"checkpoint_command": "true", "grace": 0}, "which leaves no time to save"),
    ):
        with pytest.raises(sdk.InvalidArgument, match=said) as caught:
            await world.client.submit(["true"], **options)  # type: ignore[arg-type]
        assert (caught.value.reason, caught.value.metadata["rule"]) == ("INVALID_FIELD", "checkpoint.grace")
    both = replace(by_signal.spec, checkpoint_command="true")
    with pytest.raises(sdk.InvalidArgument, match="a checkpoint signal or a checkpoint command"):
        await world.client.submit_spec(both)
    with pytest.raises(sdk.InvalidArgument, match="checkpoint_signal"):
        await world.client.submit_spec(replace(by_signal.spec, checkpoint_signal="KILL"))


@behaviour
async def a_snapshot_travels_with_its_job(world: World) -> None:
    with TemporaryDirectory() as folder:
        Path(folder, "hello").write_text("hello")
        job = await world.client.submit(["true"], snapshot=folder)
        again = await world.client.submit(["true"], snapshot=folder)
    assert len(job.spec.snapshots) == 1
    assert again.spec.snapshots == job.spec.snapshots
    assert (await world.client.wait(job, LIMIT)).state is JobState.SUCCEEDED
    with pytest.raises(sdk.FailedPrecondition, match="you have stored no snapshot") as caught:
        await world.client.submit_spec(replace(job.spec, snapshots=("0" * 64,)))
    assert caught.value.reason == "NO_SUCH_SNAPSHOT"
    with pytest.raises(sdk.InvalidArgument, match="snapshots"):
        await world.client.submit_spec(replace(job.spec, snapshots=("x",)))


@behaviour
async def what_a_preemption_cost_is_told(world: World) -> None:
    async with world.running(cpus=CPUS, grace=20) as victim, world.running_after_preemption(victim) as trial:
        cost = (await world.client.explain(victim)).preempted
        assert cost is not None
        assert (cost.by_job_id, cost.by_user, cost.time is not None) == (trial.id, trial.user, True)


@behaviour
async def a_preview_keeps_nothing(world: World) -> None:
    (node,) = await world.client.nodes()
    before = await world.client.submit(["true"])
    await world.client.wait(before, LIMIT)
    seen = await world.client.preview(SLEEP, cpus=3, name="maybe")
    assert (seen.starts, seen.victims, seen.job.id, seen.job.spec.name) == (True, (), 0, "maybe")
    assert [(task.rank, task.node, task.resources.cpus) for task in seen.tasks] == [(0, node.name, 3)]
    async with world.running(cpus=CPUS) as running:
        waits = await world.client.preview(SLEEP)
        assert (waits.starts, waits.tasks, waits.victims) == (False, (), ())
        assert waits.explanation is not None
        assert [blocker.reason for blocker in waits.explanation.blockers] == [JobReason.NO_ROOM]
        later = await world.client.preview(SLEEP, after_ok=running)
        assert later.explanation is not None
        assert [blocker.reason for blocker in later.explanation.blockers] == [JobReason.DEPENDENCY]
    with pytest.raises(sdk.FailedPrecondition, match="no node of this cluster has"):
        await world.client.preview(SLEEP, cpus=CPUS + 1)
    newest = [job.id async for job in world.client.list()][:2]
    assert newest == [running.id, before.id]
