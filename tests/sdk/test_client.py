import json
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from ebb.v1 import job_pb2

import client_sdk as sdk
from client_sdk import Client, JobState
from client_sdk._protobuf import convert
from client_sdk._transport import wire
from client_sdk.units import format_duration, format_memory, parse_duration, parse_memory
from tests.sdk.fake import Fake, serve, until

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def test_submit_says_what_was_asked(client: Client, fake: Fake) -> None:
    job = client.submit(
        ["python", Path("t.py")],
        name="n",
        job_class="trial",
        cpus=0.5,
        memory="4GiB",
        devices=2,
        grace=1.5,
        env={"A": "b"},
        export="NONE",
        working_directory="/w",
        request_id="mine",
    )
    assert (job.id, job.user, job.state, job.ended) == (1, "ada", JobState.QUEUED, False)
    assert job.submit_time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert job.spec == sdk.JobSpec(
        command=("python", "t.py"),
        resources=sdk.Resources(cpus=0.5, memory_mib=4096, devices=2),
        name="n",
        job_class=sdk.JobClass.TRIAL,
        environment={"A": "b"},
        working_directory="/w",
        grace_period=timedelta(seconds=1.5),
    )
    assert fake.submits[0].request_id == "mine"
    assert hash(job) == hash(client.get(job.id))
    assert convert.spec(convert.spec_message(job.spec)) == job.spec


def test_a_retried_submit_keeps_its_request_id_and_makes_one_job(client: Client, fake: Fake) -> None:
    fake.fail["Submit"] = [UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, UNAVAILABLE]
    job = client.submit(["true"])
    assert fake.calls["Submit"] == 4
    assert len({s.request_id for s in fake.submits}) == 1
    assert len(fake.submits[0].request_id) == 32
    assert list(fake.jobs) == [job.id]
    assert client.submit(["true"]).id != job.id


def test_errors_that_will_not_go_away_are_not_retried(client: Client, fake: Fake) -> None:
    fake.fail["Submit"] = [grpc.StatusCode.INVALID_ARGUMENT]
    with pytest.raises(sdk.InvalidArgument, match="as the test wants it"):
        client.submit(["true"])
    assert fake.calls["Submit"] == 1


def test_a_refusal_that_says_when_is_tried_again_then_and_not_sooner(client: Client, fake: Fake) -> None:
    fake.busy = [0.05, 0.05]
    began = time.monotonic()
    assert client.submit(["true"], request_id="mine").id == 1
    assert [request.request_id for request in fake.submits] == ["mine"] * 3
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("said", [0, 30], ids=["does not say when", "says that it is later than the caller waits"])
def test_a_refusal_that_cannot_be_waited_for_is_raised(client: Client, fake: Fake, said: float) -> None:
    fake.busy = [said]
    with pytest.raises(sdk.ResourceExhausted, match="100 requests of ada wait already") as caught:
        client.submit(["true"], timeout=5)
    assert caught.value.reason == "TOO_MANY_REQUESTS"
    assert len(fake.submits) == 1


def test_an_error_carries_its_reason(client: Client) -> None:
    with pytest.raises(sdk.NotFound, match="job 9 does not exist") as caught:
        client.get(9)
    assert (caught.value.reason, dict(caught.value.metadata)) == ("NO_SUCH_JOB", {"job_id": "9"})


def test_nobody_there() -> None:
    began = time.monotonic()
    with (
        Client("127.0.0.1:1", timeout=0.5) as client,
        pytest.raises(sdk.Unavailable, match=r"127\.0\.0\.1:1 cannot be reached.*EBB_ADDRESS"),
    ):
        client.get(1)
    assert time.monotonic() - began < 10


def test_what_is_shown_of_an_error_is_the_error_alone() -> None:
    with Client("127.0.0.1:1", timeout=0.1) as client, pytest.raises(sdk.Unavailable) as caught:
        client.get(1)
    assert "grpc." not in "".join(traceback.format_exception(caught.value))
    assert isinstance(caught.value.__context__, grpc.RpcError)


def test_a_closed_client_says_so(address: str) -> None:
    client = Client()
    client.close()
    client.close()
    with pytest.raises(sdk.FailedPrecondition, match="closed"):
        client.get(1)


@pytest.mark.parametrize("job_id", [-(2**70), "7", 1.5])
def test_ids_that_are_none(client: Client, job_id: int) -> None:
    with pytest.raises(sdk.InvalidArgument, match="cannot be the id of a job"):
        client.get(job_id)


def test_what_submit_refuses_by_itself(client: Client) -> None:
    with pytest.raises(sdk.InvalidArgument, match=r"\['python', 't.py'\]"):
        client.submit("python t.py")
    with pytest.raises(sdk.InvalidArgument, match="best-effort"):
        client.submit(["true"], job_class="fast")  # type: ignore[arg-type]
    with pytest.raises(sdk.InvalidArgument, match="negative"):
        client.submit(["true"], grace=-1)
    with pytest.raises(sdk.InvalidArgument, match="cannot be sent"):
        client.submit(["true"], devices=2**70)


def test_list_turns_pages(client: Client, fake: Fake) -> None:
    for i in range(1, 6):
        fake.put(job_pb2.Job(id=i, state=1 if i % 2 else 6))
    assert [job.id for job in client.list()] == [5, 4, 3, 2, 1]
    assert [job.id for job in client.list(states=[JobState.SUCCEEDED])] == [4, 2]
    assert fake.calls["List"] == 4


def test_wait_over_a_stream_that_breaks(client: Client, fake: Fake) -> None:
    fake.put(job_pb2.Job(id=1, state=1))
    fake.cut_after = 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait, 1, 30)
        for state in (2, 3):
            watches = len(fake.watches)
            until(lambda n=watches: len(fake.watches) > n)
            fake.change(1, state=state)
        fake.change(1, state=6, reason=10)
        assert waiting.result(30).state is JobState.SUCCEEDED
    assert [w.after_commit for w in fake.watches] == sorted(w.after_commit for w in fake.watches)
    assert fake.watches[-1].after_commit > 0


def test_wait_over_a_restart_of_the_scheduler() -> None:
    fake = Fake()
    fake.put(job_pb2.Job(id=1, state=3))
    with ThreadPoolExecutor(1) as pool:
        with serve(fake) as address:
            client = Client(address)
            waiting = pool.submit(client.wait, 1)
            until(lambda: fake.watches)
        fake.change(1, state=7, exit_code=3)
        with serve(fake, int(address.rpartition(":")[2])), client:
            assert waiting.result(30).exit_code == 3


def test_while_nothing_answers_the_log_says_so_once_and_that_it_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wire, "_WORTH_A_WORD", 0)
    fake = Fake()
    fake.put(job_pb2.Job(id=1, state=3))
    with ThreadPoolExecutor(1) as pool:
        with serve(fake) as address:
            client = Client(address)
            waiting = pool.submit(client.wait, 1)
            until(lambda: fake.watches)
        until(lambda: any("trying again" in record.message for record in caplog.records))
        fake.change(1, state=6, reason=10)
        with serve(fake, int(address.rpartition(":")[2])), client:
            assert waiting.result(30).ended
    away, back = (record.getMessage() for record in caplog.records if record.name == "client_sdk")
    assert away.startswith(f"the scheduler at {address} ")
    assert back == f"the scheduler at {address} answers again"


def test_words_of_the_api_are_shown_as_words() -> None:
    job = convert.job(job_pb2.Job(id=1, state=3))
    assert (f"{job.state} {job.state:>9}", str(sdk.JobReason.NO_ROOM)) == ("RUNNING   RUNNING", "NO_ROOM")
    assert (job.state, json.dumps(job.state), repr(job.state)) == (3, "3", "<JobState.RUNNING: 3>")


def test_wait_gives_up_in_time(client: Client, fake: Fake) -> None:
    fake.put(job_pb2.Job(id=1, state=3))
    with pytest.raises(sdk.DeadlineExceeded, match=r"job 1 is still RUNNING after 0\.3 s"):
        client.wait(1, timeout=0.3)
    fake.change(1, state=6)
    assert client.wait(1, timeout=0).ended
    with pytest.raises(sdk.NotFound):
        client.wait(2, timeout=5)


def test_a_watch_of_one_job_ends_with_it(client: Client, fake: Fake) -> None:
    fake.put(job_pb2.Job(id=1, state=3))
    watch = client.watch(1)
    first = next(watch)
    assert first.snapshot
    fake.change(1, state=8)
    assert [(u.snapshot, u.jobs[0].state) for u in watch] == [(False, JobState.CANCELLED)]
    assert [u.jobs[0].id for u in client.watch(1, after_commit=first.commit_no)] == [1]


def test_closing_the_client_ends_its_watches(address: str, fake: Fake) -> None:
    fake.put(job_pb2.Job(id=1, state=3))
    client = Client()
    watch = client.watch()
    assert next(watch).snapshot
    threading.Timer(0.1, client.close).start()
    with pytest.raises(sdk.EbbError, match="closed"):
        next(watch)


def test_one_client_serves_many_threads(client: Client, fake: Fake) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: client.submit(["true"]).id, range(1)))
        found = list(pool.map(client.get, ids * 64))
    assert {job.id for job in found} == set(ids)


def test_a_newer_scheduler_may_know_more() -> None:
    job = convert.job(job_pb2.Job(id=1, state=77, reason=99))  # type: ignore[arg-type]
    assert (job.state, job.reason, job.cause_job_id, job.node) == (JobState.UNSPECIFIED, sdk.JobReason.UNSPECIFIED, None, None)


@pytest.mark.parametrize("kind", [sdk.JobState, sdk.JobClass, sdk.JobReason, sdk.JobEventKind])
def test_enums_are_those_of_the_api(kind: type) -> None:
    proto = getattr(job_pb2, kind.__name__)
    prefix = {"JobClass": "JOB_CLASS_", "JobState": "JOB_STATE_", "JobReason": "JOB_REASON_", "JobEventKind": "JOB_EVENT_KIND_"}
    assert {m.name: m.value for m in kind} == {k.removeprefix(prefix[kind.__name__]): v for k, v in proto.items()}  # type: ignore[attr-defined]


def test_units() -> None:
    assert [parse_memory(t) for t in ("512", "4GiB", "1.5g", "1GB", "1kib", 7)] == [512, 4096, 1536, 954, 1, 7]
    assert [parse_duration(t).total_seconds() for t in ("0", "1h30m", "500ms", 2, "2d")] == [0, 5400, 0.5, 2, 172800]
    assert [format_memory(n) for n in (0, 512, 4096, 1536, 2**20)] == ["0MiB", "512MiB", "4GiB", "1536MiB", "1TiB"]
    assert [format_duration(timedelta(seconds=s)) for s in (-1, 7, 3723, 180000)] == ["0:00", "0:07", "1:02:03", "2-02:00:00"]
    for bad in ("", "4XB", "-1GiB", "GiB"):
        with pytest.raises(sdk.InvalidArgument, match="not an amount"):
            parse_memory(bad)
    for bad in ("", "5x", "1 2", "m"):
        with pytest.raises(sdk.InvalidArgument, match="not a duration"):
            parse_duration(bad)
    for bare in ("90", " 1.5 ", "007"):
        with pytest.raises(sdk.InvalidArgument, match=f"has no unit: write {bare.strip()}s for .* or {bare.strip()}m"):
            parse_duration(bare)
