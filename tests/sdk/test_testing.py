"""The fake cluster's own side: what a test can make happen. What it does as a cluster is in the contract."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import protovalidate
import pytest
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

import client_sdk as sdk
from client_sdk import Client, Exit0AfterStop, Job, JobEventKind, JobReason, JobState, Resources, testing
from client_sdk.testing import FakeCluster, Outcome, _field_rules
from client_sdk.testing.fixtures import ebb_cluster
from scheduler_service.rpc.interceptors import field_of

__all__ = ["ebb_cluster"]


def test_jobs_succeed_at_once(ebb_cluster: FakeCluster) -> None:
    assert ebb_cluster.address == os.environ["EBB_ADDRESS"]
    with Client() as client:
        job = client.submit(["python", "train.py"], devices=2)
        assert job.state is JobState.QUEUED
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
        assert node.observations == replace(seen, cycles=(cycles[0],))
        assert [device.fault for device in node.devices] == ["", "lost"]
        assert [node.observations for node in client.nodes()] == [None]
        fake.finish(job)
        assert client.node("n1").observations == replace(seen, cycles=())
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
        with pytest.raises(sdk.FailedPrecondition, match=r"FakeCluster\.share says what they are"):
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


SPEC: dict[str, Any] = {"command": ["true"], "resources": job_pb2.Resources()}


def submit(**spec: Any) -> Message:
    return scheduler_pb2.SubmitRequest(spec=job_pb2.JobSpec(**{**SPEC, **spec}))


REQUESTS = [
    submit(),
    scheduler_pb2.SubmitRequest(),
    scheduler_pb2.SubmitRequest(spec=job_pb2.JobSpec(name="x" * 129)),
    submit(resources=job_pb2.Resources(cpu_milli=-1, memory_mib=10**10, devices=1024)),
    *(submit(name=name) for name in ("a b.c:/=+-", "é", "x\n", " ", "ü" * 128, "x" * 128)),
    *(submit(job_class=number) for number in (0, 2, 3, -1)),
    *(submit(command=command) for command in ([], [""], ["x"] * 1025, ["x" * 131073, "y", "\0"], ["ü" * 65537])),
    submit(environment={"EBB_": "", "1a": "b\0", "ok": "\n", "": "x", "EBB_1!": "x" * 131073}),
    submit(environment={f"a{i}": "" for i in range(1025)}),
    *(submit(working_directory=path) for path in ("", "/", "a", "/\0", "/a\n", "/" + "x" * 4096)),
    *(
        submit(grace_period=d)
        for d in (Duration(), Duration(seconds=-1), Duration(seconds=86400), Duration(seconds=86400, nanos=1))
    ),
    *(
        scheduler_pb2.SubmitRequest(spec=job_pb2.JobSpec(**SPEC), request_id=i)
        for i in ("", "a.b_c:d-e", "a b", "a\n", "x" * 129)
    ),
    *(scheduler_pb2.GetRequest(job_id=i) for i in (-1, 0, 1)),
    *(scheduler_pb2.SchedulerWatchRequest(job_id=i, after_commit=i) for i in (-1, 0)),
    *(scheduler_pb2.ListRequest(page_size=n, page_token=t) for n, t in ((0, ""), (1000, "12"), (1001, "-1"), (-1, "1" * 65))),
    *(scheduler_pb2.ListRequest(states=cast(Any, states)) for states in ([0, 8], [9] * 17, [11])),
    submit(priority=1001, time_limit=Duration(), estimate=Duration(seconds=1)),
    submit(retry=job_pb2.Retry(limit=101, exit_codes=[0, 1, 256], exit_signals=[64, 65])),
    submit(task_groups=[job_pb2.TaskGroup(count=0), job_pb2.TaskGroup(count=1, resources=job_pb2.Resources(devices=-1))]),
    submit(task_groups=[job_pb2.TaskGroup(count=1, resources=job_pb2.Resources(), command=["\0"])] * 65),
    submit(dependencies=[job_pb2.Dependency(job_id=0), job_pb2.Dependency(job_id=1, kind=cast(Any, 9))]),
    submit(array=job_pb2.Array(size=0, at_once=-1)),
    scheduler_pb2.UpdateRequest(job_id=1),
    scheduler_pb2.UpdateRequest(job_id=0, priority=-1001, time_limit=Duration(seconds=-1)),
    scheduler_pb2.UpdateRequest(job_id=1, dependencies=scheduler_pb2.Dependencies(dependencies=[job_pb2.Dependency()])),
    cluster_pb2.DrainRequest(reason="x" * 257),
    cluster_pb2.DrainRequest(node="n" * 254, reason="\0"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{r.DESCRIPTOR.name}-{str(r)[:40]!r}")
def test_its_rules_are_those_of_the_service(request_: Message) -> None:
    broken = protovalidate.collect_violations(request_)
    expected = [(field_of(violation), violation.proto.rule_id) for violation in broken]
    assert sorted((field, rule) for field, rule, _ in _field_rules.violations(request_)) == sorted(expected)
