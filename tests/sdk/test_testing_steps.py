"""Steps in the fake cluster: `observe` sets them, and clients read them as they do from the service."""

from datetime import UTC, datetime, timedelta

import client_sdk as sdk
from client_sdk import JobState, RunSteps, StepState, TaskGroup, testing

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NODES = {"n1": sdk.Resources(cpus=8, memory_mib=8192, devices=2), "n2": sdk.Resources(cpus=8, memory_mib=8192)}


def steps(job_id: int, step: int, **fields: int) -> RunSteps:
    return RunSteps(
        job_id=job_id,
        step=step,
        total=100,
        state=StepState.EVALUATING,
        since_step=timedelta(seconds=1),
        step_rate=0.5,
        step_rate_error=0.25,
        step_rate_since_start=0.75,
        mini_batch_time=timedelta(seconds=2),
        mini_batch_spread=timedelta(seconds=0.5),
        measured=20,
        remaining=timedelta(seconds=180),
        **{"run": 1, **fields},
    )


def test_steps_that_are_observed_are_those_of_job_and_node() -> None:
    with testing.cluster(NODES, by_hand=True) as fake, fake.client() as client:
        job = client.submit(["train"], devices=1)
        observed = (steps(job.id, 10), steps(job.id, 9, run=2), steps(job.id, 8, task=1), steps(99, 7))
        fake.observe("n1", sdk.Observations(time=NOW, steps=observed))
        assert client.get(job.id).steps == (), "it does not run yet"
        fake.start(job)
        assert client.get(job.id).steps == observed[:1]
        assert [each.steps for each in client.list()] == [()]
        seen = client.node("n1").observations
        assert seen is not None
        assert seen == sdk.Observations(time=seen.time, steps=observed[:1])
        assert fake.finish(job).state is JobState.SUCCEEDED
        assert client.get(job.id).steps == ()
        assert client.node("n1").observations is None


def test_a_gang_has_the_steps_of_each_task_from_its_own_node() -> None:
    with testing.cluster(NODES, by_hand=True) as fake, fake.client() as client:
        gang = fake.start(client.submit(["train"], tasks=[TaskGroup(2, cpus=8, memory="1GiB")]))
        first, second = (task.node for task in gang.tasks)
        assert first is not None
        assert second is not None
        fake.observe(second, sdk.Observations(time=NOW, steps=(steps(gang.id, 6, task=1), steps(gang.id, 5))))
        fake.observe(first, sdk.Observations(time=NOW, steps=(steps(gang.id, 4),)))
        assert client.get(gang.id).steps == (steps(gang.id, 4), steps(gang.id, 6, task=1))


async def test_the_asynchronous_client_reads_them() -> None:
    with testing.cluster(NODES, by_hand=True) as fake:
        async with sdk.AsyncClient(fake.address) as client:
            job = fake.start(await client.submit(["train"]))
            fake.observe("n1", sdk.Observations(time=NOW, steps=(steps(job.id, 3),)))
            assert (await client.get(job.id)).steps == (steps(job.id, 3),)
            fake.observe("n1", None)
            assert (await client.get(job.id)).steps == ()
