"""The fake cluster under the policies and settings of a service: virtual clusters, FitGpp, Gandiva."""

from datetime import UTC, datetime, timedelta

import pytest

import client_sdk as sdk
from client_sdk import CellQuota, JobReason, JobState, Resources, testing

RUNNING, QUEUED = JobState.RUNNING, JobState.QUEUED
TWO_NODES = {name: Resources(cpus=16, memory_mib=65536, devices=4) for name in ("n1", "n2")}
ONE_DEVICE = {"n1": Resources(cpus=16, memory_mib=65536, devices=1)}


def test_a_virtual_cluster_takes_its_cells_back() -> None:
    with testing.cluster(TWO_NODES, config={"virtual_clusters": True}, script=lambda _: None) as fake, fake.client() as client:
        (pool,) = client.cells()
        client.create_virtual_cluster("vision", quotas=[CellQuota(pool.name, "node", 1)])
        client.create_virtual_cluster("speech", quotas=[CellQuota(pool.name, "node", 1)])
        own = client.submit(["a"], devices=4, vc="vision")
        guest = client.submit(["b"], devices=4, vc="vision", guarantee="opportunistic")
        assert [(job.state, job.guaranteed) for job in fake.jobs] == [(RUNNING, True), (RUNNING, False)]
        owner = client.submit(["c"], devices=4, vc="speech")
        assert [client.get(job).state for job in (own, guest, owner)] == [RUNNING, QUEUED, RUNNING]
        away = client.get(guest)
        assert (away.reason, away.cause_job_id, away.exit_signal) == (JobReason.RECLAIMED, owner.id, 15)
        fake.finish(owner)
        assert client.get(guest).run == 2


def test_a_trial_preempts_under_fitgpp_and_not_where_no_policy_is_chosen() -> None:
    for policy, expected in (("fitgpp", [QUEUED, RUNNING]), (None, [RUNNING, QUEUED])):
        with testing.cluster(script=lambda _: None, policy=policy) as fake, fake.client() as client:
            client.submit(["long"], devices=8)
            trial = client.submit(["short"], devices=1, job_class="trial")
            assert [job.state for job in fake.jobs] == expected
            if policy:
                fake.finish(trial)
                assert client.get(1).run == 2


def test_jobs_take_turns_under_gandiva() -> None:
    with testing.cluster(ONE_DEVICE, policy="gandiva", script=lambda _: None) as fake, fake.client() as client:
        first, second = (client.submit([name], devices=1) for name in ("a", "b"))
        assert [(job.state, job.devices) for job in fake.jobs] == [(RUNNING, (0,))] * 2
        assert "takes turns with job 1 on device 0" in client.explain(second).sharing_reason
        (node,) = client.nodes()
        assert node.devices[0].job_ids == (first.id, second.id)
        timed = sdk.MiniBatch(job_id=1, run=1, time=timedelta(seconds=1), source=sdk.models.MiniBatchSource.STEPS)
        fake.observe("n1", sdk.Observations(time=datetime.now(UTC), mini_batches=(timed,)))
        assert client.get(first).turn is sdk.models.TurnState.EXECUTES, "it was measured in its turn"
        fake.finish(first)
        assert [job.state for job in fake.jobs] == [JobState.SUCCEEDED, RUNNING]


def test_settings_are_those_of_a_service() -> None:
    with testing.cluster(config={"default_grace": 5, "retry_pause": 0.01}) as fake, fake.client() as client:
        assert client.submit(["true"]).spec.grace_period.total_seconds() == 5
    with pytest.raises(ValueError, match=r"testing\.cluster: policy"), testing.cluster(policy="fairest"):
        pass
    with pytest.raises(ValueError, match=r"testing\.cluster: .*default_grease"), testing.cluster(config={"default_grease": 5}):
        pass
    with pytest.raises(ValueError, match="without virtual clusters"):
        testing.cluster(by_hand=True, config={"virtual_clusters": True}).__enter__()


def test_by_hand_under_another_policy() -> None:
    with testing.cluster(by_hand=True, policy="fair") as fake, fake.client() as client:
        first, second = (client.submit(["true"], devices=8) for _ in range(2))
        fake.start(second)
        with pytest.raises(sdk.FailedPrecondition, match="job 1 fits on no node now"):
            fake.start(first)
        assert client.shares().queued == 1
