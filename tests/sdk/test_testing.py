"""The fake cluster's own side: what a test can make happen. What it does as a cluster is in the contract."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import client_sdk as sdk
from client_sdk import Client, Exit0AfterStop, Job, JobEventKind, JobReason, JobState, Resources, testing
from client_sdk.testing import FakeCluster, Outcome
from client_sdk.testing.fixtures import ebb_cluster

__all__ = ["ebb_cluster"]


def test_jobs_succeed_at_once(ebb_cluster: FakeCluster) -> None:
    assert ebb_cluster.address == os.environ["EBB_ADDRESS"]
    with Client() as client:
        job = client.submit(["python", "train.py"], devices=2)
        assert job.state is JobState.STARTING
        assert client.get(job.id).state is JobState.SUCCEEDED
    assert ebb_cluster.jobs[0].devices == (0, 1)
    assert ebb_cluster.jobs[0].user == "tester"


def test_what_the_environment_says_of_a_site_is_hidden_until_the_last_cluster_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    site = {"EBB_TOKEN": "a", "EBB_TOKEN_FILE": "b", "EBB_TLS_CA": "c", "EBB_TLS_CERT": "d", "EBB_TLS_KEY": "e", "EBB_VC": "f"}
    for name, value in site.items():
        monkeypatch.setenv(name, value)
    with testing.cluster() as fake:
        with testing.cluster():
            pass
        assert not site.keys() & os.environ.keys()
        with Client(fake.address) as client:
            client.submit(["true"])
    assert {name: os.environ.get(name) for name in site} == site


def test_a_script_ends_jobs() -> None:
    def script(job: Job) -> Outcome | None:
        return None if job.spec.name == "long" else Outcome(exit_code=len(job.spec.command), output=f"run {job.run}\n")

    with testing.cluster(script=script, user="ada") as fake, fake.client() as client:
        assert client.wait(client.submit(["a", "b"])).exit_code == 2
        assert list(client.logs(1)) == ["run 1\n"]
        long = client.submit(["a"], name="long", devices=8)
        behind = client.submit(["a"], devices=1)
        assert (long.user, behind.reason, behind.cause_job_id) == ("ada", JobReason.NO_ROOM, None)
        assert client.get(long.id).state is JobState.RUNNING
        assert fake.finish(long, exit_signal=11).reason is JobReason.SIGNALLED
        assert client.get(behind.id).ended


def test_by_hand_nothing_happens_by_itself() -> None:
    with testing.cluster({"n": Resources(cpus=2, memory_mib=4096)}, by_hand=True) as fake, fake.client() as client:
        first, second = client.submit(["true"], cpus=2), client.submit(["true"])
        assert fake.start(first).state is JobState.RUNNING
        with pytest.raises(sdk.FailedPrecondition, match="job 2 fits on no node now"):
            fake.start(second)
        with pytest.raises(sdk.FailedPrecondition, match="job 1 is RUNNING; for this it must be QUEUED"):
            fake.start(first)
        assert client.cancel(1).state is JobState.STOPPING
        assert client.get(1).state is JobState.STOPPING
        assert fake.finish(1).state is JobState.CANCELLED
        assert fake.finish(second).state is JobState.SUCCEEDED
        with pytest.raises(sdk.FailedPrecondition, match="job 2 is SUCCEEDED"):
            fake.finish(second)
        with pytest.raises(sdk.NotFound, match="no job 7"):
            fake.finish(7)


def test_by_hand_no_more_elements_start_than_may_at_once() -> None:
    with testing.cluster(by_hand=True) as fake, fake.client() as client:
        array = client.submit(["true"], array=3, array_at_once=1)
        first = fake.start(array)
        with pytest.raises(sdk.FailedPrecondition, match="array 1 has as many elements under way as it may"):
            fake.start(array)
        fake.finish(first)
        assert fake.start(array).array_index == 1


def test_a_preempted_job_goes_on_or_ends_in_its_grace_period() -> None:
    with testing.cluster(by_hand=True) as fake, fake.client() as client:
        job, trial = client.submit(["true"]), client.submit(["true"], job_class="trial")
        fake.start(job)
        left = fake.preempt(job, for_=trial)
        assert (left.state, left.reason, left.cause_job_id, left.exit_code) == (JobState.QUEUED, JobReason.PREEMPTED, 2, 143)
        assert fake.start(job).run == 2
        assert fake.preempt(job, for_=trial, leaves=False).state is JobState.STOPPING
        done = fake.finish(job, done=True)
        assert (done.state, done.preempted_for_trial) == (JobState.SUCCEEDED, 2)
        kinds = [event.kind for event in client.story(job.id)]
        assert kinds.count(JobEventKind.PREEMPTED) == 2
        assert kinds.count(JobEventKind.VACATED) == 1
        fake.start(trial)
        with pytest.raises(sdk.FailedPrecondition, match="only best-effort jobs are preempted, and only for trials"):
            fake.preempt(trial, for_=trial)


def test_an_exit_with_0_after_a_stop_signal_means_stopped_unless_the_job_says_otherwise() -> None:
    with testing.cluster(by_hand=True) as fake, fake.client() as client:
        jobs = [client.submit(["true"]), client.submit(["true"], exit_0_after_stop="done")]
        trial = client.submit(["true"], job_class="trial")
        for job in jobs:
            fake.start(job)
            fake.preempt(job, for_=trial, leaves=False)
        assert [fake.finish(job).state for job in jobs] == [JobState.QUEUED, JobState.SUCCEEDED]
        assert [client.get(job.id).spec.exit_0_after_stop for job in jobs] == [Exit0AfterStop.STOPPED, Exit0AfterStop.DONE]
        fake.start(jobs[0])
        client.suspend(jobs[0])
        assert fake.finish(jobs[0]).state is JobState.SUSPENDED
        with pytest.raises(sdk.InvalidArgument, match="exit_0_after_stop='later' is unknown"):
            client.submit(["true"], exit_0_after_stop="later")  # type: ignore[arg-type]


def test_calls_fail_as_often_as_told() -> None:
    with testing.cluster() as fake, fake.client() as client:
        fake.fail_next(2, call="Get")
        job = client.submit(["true"])
        assert client.get(job.id).ended
        assert fake.calls == {"Submit": 1, "Get": 3}
        fake.fail_next(error=sdk.PermissionDenied)
        with pytest.raises(sdk.PermissionDenied, match="the test wants it so"):
            client.nodes()
        with fake.unavailable(), fake.client(timeout=0.1) as hasty, pytest.raises(sdk.Unavailable):
            hasty.get(1)
        assert client.get(1).ended


def test_a_script_that_raises_is_told_to_the_caller() -> None:
    def script(_: Job) -> Outcome:
        raise ZeroDivisionError("oops")

    with (
        testing.cluster(script=script) as fake,
        pytest.raises(sdk.Internal, match=r"script, raised ZeroDivisionError\('oops'\)"),
    ):
        fake.client().submit(["true"])


def test_what_is_seen_of_devices() -> None:
    with testing.cluster({"n1": Resources(cpus=8, memory_mib=1024, devices=2)}, by_hand=True) as fake, fake.client() as client:
        devices = (sdk.DeviceObservation(index=0, memory_used_mib=5), sdk.DeviceObservation(index=1, fault="lost"))
        job = fake.start(client.submit(["train"], devices=1))
        cycles = [
            sdk.MemoryCycle(job_id=job.id, run=run, device=0, minimum_mib=1, maximum_mib=2, period=timedelta(seconds=1))
            for run in (1, 2)
        ]
        seen = sdk.Observations(time=datetime(2026, 1, 2, tzinfo=UTC), devices=devices, cycles=tuple(cycles))
        assert client.node("n1").observations is None
        fake.observe("n1", seen)
        node = client.node("n1")
        assert node.observations is not None
        at = node.observations.time
        assert node.observations == replace(seen, time=at, cycles=(cycles[0],))
        assert [device.fault for device in node.devices] == ["", "lost"]
        assert [node.observations for node in client.nodes()] == [None]
        fake.finish(job)
        assert client.node("n1").observations == replace(seen, time=at, cycles=())
        with pytest.raises(sdk.InvalidArgument, match="its 2 devices"):
            fake.observe("n1", replace(seen, devices=devices[:1]))
        with pytest.raises(sdk.NotFound):
            fake.observe("n2", seen)
        fake.observe("n1", None)
        assert client.node("n1").observations is None


def test_shares_are_as_the_test_says() -> None:
    share = sdk.Share(
        project="p",
        user="ann",
        shares=2,
        part_of_shares=1,
        device_hours=3.5,
        part_of_usage=1,
        factor=0.5,
        devices=4,
        queued=1,
    )
    told = sdk.Shares(
        time=datetime(2026, 1, 2, tzinfo=UTC),
        half_life=timedelta(hours=1),
        shares=(share,),
        more_shares=1,
        queued=3,
        next_job_ids=(7, 8),
    )
    with testing.cluster() as fake, fake.client() as client:
        fake.share(told)
        assert client.shares() == told
        fake.share(None)
        with pytest.raises(sdk.FailedPrecondition, match="the policy does not go by usage"):
            client.shares()


def test_nothing_is_left_behind() -> None:
    with testing.cluster() as fake:
        client = fake.client(timeout=0.2)
        path = client.wait(client.submit(["true"])).log_path
        assert path is not None
        assert Path(path).exists()
        watch = client.watch()
        next(watch)
    assert not Path(path).parent.exists()
    with pytest.raises(sdk.EbbError):
        next(watch)
    with Client(fake.address, timeout=0.2) as late, pytest.raises(sdk.Unavailable):
        late.get(1)
    fake.close()
    assert ([job.state for job in fake.jobs], fake.calls["Submit"]) == ([JobState.SUCCEEDED], 1), "it can still be read"
    with pytest.raises(sdk.FailedPrecondition, match="the fake cluster is closed"):
        fake.start(1)


def test_nodes_that_cannot_be_are_refused() -> None:
    for nodes in ({"n 1": Resources(cpus=1, memory_mib=1)}, {"n1": Resources(cpus=1, memory_mib=0)}):
        with pytest.raises(ValueError, match=r"testing\.cluster: "), testing.cluster(nodes):
            pass


WITHOUT_THE_EXTRA = """
import sys
import client_sdk, client_sdk.cli
from client_sdk import testing
assert "scheduler_service" not in sys.modules
sys.modules["protovalidate"] = None
try:
    testing.cluster().__enter__()
except ModuleNotFoundError as missing:
    print(missing)
"""


def test_without_the_extra_it_is_named_and_the_sdk_needs_no_scheduler() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-c", WITHOUT_THE_EXTRA]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("client_sdk.testing.cluster needs protovalidate, which this installation lacks: ")
    assert done.stdout.endswith("pip install 'ebb-cluster[testing]'\n")


def test_calls_from_many_threads_settle() -> None:
    with testing.cluster() as fake, fake.client() as client, ThreadPoolExecutor(8) as threads:
        jobs = list(threads.map(lambda _: client.submit(["true"]), range(40)))
        assert all(client.get(job).state is JobState.SUCCEEDED for job in jobs)
        assert len({job.id for job in fake.jobs}) == 40
