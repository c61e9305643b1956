"""Functions as jobs, in the fake cluster: what comes back, and what is refused."""

import builtins
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import (
    AsyncFunctionFuture,
    Client,
    DeadlineExceeded,
    FailedPrecondition,
    FunctionFailed,
    FunctionFuture,
    InvalidArgument,
    JobState,
)
from client_sdk._functions import call, packing
from client_sdk.testing import FakeCluster, Outcome, cluster
from ebb_common.archive import unpack


class Unreadable(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} {other}")


def add(a: int, b: int = 1) -> int:
    return a + b


def fail(kind: type[Exception], *args: object) -> None:
    raise kind(*args)


@pytest.fixture
def ebb_cluster() -> Iterator[FakeCluster]:
    with cluster() as fake:
        yield fake


def test_a_function_is_called_and_its_result_comes_back(ebb_cluster: FakeCluster) -> None:
    numbers = ebb_cluster.client().functions(devices=2, memory="2GiB", env={"A": "b"})
    future: FunctionFuture[int] = numbers.submit(add, 3, b=4)
    assert future.result() == 7
    assert future.done()
    assert (future.job.spec.name, future.job.state) == ("add", JobState.SUCCEEDED)
    assert (future.job.spec.resources.devices, future.job.spec.environment) == (2, {"A": "b"})
    local = 5
    assert numbers.submit(lambda: local + 1).result() == 6, "what is in no module travels by value"
    assert ebb_cluster.jobs[-1].spec.name
    assert numbers.submit(str.upper, "a").result() == "A"


async def test_the_same_awaited(ebb_cluster: FakeCluster) -> None:
    async with ebb_cluster.async_client() as client:
        numbers = client.functions()
        future: AsyncFunctionFuture[int] = await numbers.submit(add, 3, b=4)
        assert await future.result() == 7
        assert await future.done()
        with pytest.raises(ValueError, match="no"):
            await (await numbers.submit(fail, ValueError, "no")).result()


def test_what_it_raises_is_raised(ebb_cluster: FakeCluster) -> None:
    functions = ebb_cluster.client().functions()
    future = functions.submit(fail, ValueError, "no")
    with pytest.raises(ValueError, match="no") as caught:
        future.result()
    told = str(caught.value.__cause__)
    assert "in fail" in told
    assert "call.py" not in told, "of Ebb's own there is nothing in it"
    assert (future.job.state, future.job.exit_code) == (JobState.FAILED, 1)


def test_an_exception_that_cannot_be_read_is_told_in_words(ebb_cluster: FakeCluster) -> None:
    with pytest.raises(FunctionFailed, match=r"fail \(job 1\) failed: Unreadable: 1 2") as caught:
        ebb_cluster.client().functions().submit(fail, Unreadable, 1, 2).result()
    assert "in fail" in str(caught.value.__cause__)


def test_a_result_that_cannot_be_pickled(ebb_cluster: FakeCluster) -> None:
    with pytest.raises(FunctionFailed, match="the result, of type generator, cannot be pickled"):
        ebb_cluster.client().functions().submit(lambda: (n for n in range(3))).result()


def test_an_argument_that_cannot_be_pickled(ebb_cluster: FakeCluster) -> None:
    functions = ebb_cluster.client().functions()
    with pytest.raises(InvalidArgument, match="add or an argument of it cannot be pickled"):
        functions.submit(add, sys._getframe())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="5 is no function"):
        functions.submit(5)  # type: ignore[arg-type]


def test_options_that_make_no_sense(ebb_cluster: FakeCluster, tmp_path: Path) -> None:
    client = ebb_cluster.client()
    for options, said in (
        ({"array": 3}, "a function is no array"),
        ({"cpus": "2"}, "no number of CPUs"),
        ({"snapshot": str(tmp_path), "working_directory": "/x"}, "exclude each other"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            client.functions(**options)  # type: ignore[arg-type]


def test_a_snapshot_is_stored_once_for_all(ebb_cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("1")
    functions = ebb_cluster.client().functions(snapshot=tmp_path)
    futures = [functions.submit(add, number) for number in range(3)]
    assert [future.result() for future in futures] == [1, 2, 3]
    first = {job.spec.snapshots[0] for job in ebb_cluster.jobs}
    assert len(first) == 1
    assert len({job.spec.snapshots[1] for job in ebb_cluster.jobs}) == 3


def test_a_job_that_ends_otherwise(ebb_cluster: FakeCluster) -> None:
    with cluster(by_hand=True) as fake:
        future = fake.client().functions().submit(add, 1)
        assert not future.done()
        with pytest.raises(DeadlineExceeded):
            future.result(timeout=0.05)
        future.cancel()
        with pytest.raises(FunctionFailed, match=r"add \(job 1\) has no result: the job ended as CANCELLED"):
            future.result()
    with cluster(script=lambda _: Outcome(exit_signal=9)) as fake, pytest.raises(FunctionFailed, match=r"FAILED \(SIGNALLED\)"):
        fake.client().functions().submit(add, 1).result()


def test_one_that_was_preempted_is_called_again(ebb_cluster: FakeCluster) -> None:
    with cluster(by_hand=True) as fake:
        future = fake.client().functions().submit(add, 1)
        fake.start(future.job)
        trial = fake.client().submit(["true"], job_class="trial")
        fake.preempt(future.job, for_=trial)
        fake.finish(future.job)
        assert future.result() == 2
        assert future.job.run == 2


def test_without_cloudpickle(ebb_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = packing.pack_function(add, (1,), {})
    folder = tmp_path / packing.FOLDER
    archive_of(made, tmp_path)
    real = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name == "cloudpickle":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(FailedPrecondition, match=r"install ebb-cluster\[functions\]"):
        ebb_cluster.client().functions()
    outcome = call.execute_call(str(folder))
    assert "has no package cloudpickle" in str(outcome["message"])


def test_another_python_says_so(tmp_path: Path) -> None:
    archive_of(packing.pack_function(add, (1,), {}), tmp_path)
    (tmp_path / packing.FOLDER / "python.json").write_text("[3, 1]")
    outcome = call.execute_call(str(tmp_path / packing.FOLDER))
    assert "the function was submitted by Python 3.1, and" in str(outcome["message"])


def archive_of(made: Any, into: Path) -> None:
    into.rmdir()
    unpack(io.BytesIO(made.data), into)


def test_an_upload_goes_on_where_it_was(ebb_cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(256)) * 100)
    client: Client = ebb_cluster.client()
    ebb_cluster.fail_next(2, call="PutSnapshot", after=True)
    job = client.submit(["true"], snapshot=tmp_path)
    assert client.wait(job).state is JobState.SUCCEEDED
    calls = ebb_cluster.calls["PutSnapshot"]
    client.submit(["true"], snapshot=tmp_path)
    assert ebb_cluster.calls["PutSnapshot"] == calls, "it is there"


@pytest.mark.parametrize(
    ("options", "python"),
    [({}, sys.executable), ({"python": "python3.11"}, "python3.11"), ({"venv": sys.prefix}, "python")],
)
def test_functions_run_with_the_interpreter_that_submits_them(
    ebb_cluster: FakeCluster, options: dict[str, str], python: str
) -> None:
    """That of a notebook's kernel, say, which is seldom the first one in PATH."""
    future: FunctionFuture[int] = ebb_cluster.client().functions(**options).submit(add, 1)  # type: ignore[arg-type]
    assert future.job.spec.command == (python, packing.COMMAND)


@pytest.mark.parametrize("folder", [None, "/tmp"])
def test_a_node_without_the_interpreter_is_told(folder: str | None) -> None:
    outcome = Outcome(exit_code=127) if folder else Outcome(launch_error="no such file")
    with cluster(script=lambda _job: outcome) as fake:
        future: FunctionFuture[int] = fake.client().functions(python="/x/bin/python", working_directory=folder).submit(add, 1)
        with pytest.raises(FunctionFailed, match="may have no /x/bin/python: name one that it has, by python, venv or conda"):
            future.result()
