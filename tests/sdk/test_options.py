"""What the SDK makes of the options of a job, and of the answers: each value where the API has it."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf import json_format

import client_sdk as sdk
from client_sdk import DependencyKind, Job, JobReason, JobSpec, Resources, TaskGroup, testing
from client_sdk._protobuf import convert, convert_explanations, convert_nodes
from client_sdk._protobuf.calls import encode
from client_sdk._requests.jobs import Submit, TryOut, submit, update
from client_sdk._values.options import job_spec
from client_sdk.testing import Outcome

BASE: dict[str, Any] = {"spec": {"command": ["a"], "resources": {}, "jobClass": "JOB_CLASS_BEST_EFFORT"}}


def sent(request: Any) -> dict[str, Any]:
    return json_format.MessageToDict(encode(request).message)


def test_every_option_is_sent() -> None:
    other = Job(id=4, spec=JobSpec(command=("a",), resources=Resources()))
    spec = job_spec(
        ["a"],
        priority=-5,
        time_limit="1d",
        estimate=90,
        retries=3,
        retry_exit_codes=[75, 3, 75],
        retry_exit_signals=[Signals.SIGKILL],
        tasks=[TaskGroup(1, cpus=8), TaskGroup(4, devices=1, cpus=0.5, memory="8GiB", command=["b"])],
        after_ok=[9, other],
        after_any=7,
        after_failed=other,
        array=10,
        array_at_once=2,
        export="A=1",
        env={"B": "2"},
        project="vision",
    )
    message = sent(Submit(spec, "r"))
    assert message == {
        "requestId": "r",
        "spec": {
            "command": ["a"],
            "jobClass": "JOB_CLASS_BEST_EFFORT",
            "resources": {},
            "priority": -5,
            "timeLimit": "86400s",
            "estimate": "90s",
            "retry": {"limit": 3, "exitCodes": [3, 75], "exitSignals": [9]},
            "taskGroups": [
                {"count": 1, "resources": {"cpuMilli": "8000", "memoryMib": "1024"}},
                {"count": 4, "resources": {"cpuMilli": "500", "memoryMib": "8192", "devices": "1"}, "command": ["b"]},
            ],
            "dependencies": [
                {"jobId": "4", "kind": "DEPENDENCY_KIND_AFTER_OK"},
                {"jobId": "4", "kind": "DEPENDENCY_KIND_AFTER_FAILED"},
                {"jobId": "7", "kind": "DEPENDENCY_KIND_AFTER_ANY"},
                {"jobId": "9", "kind": "DEPENDENCY_KIND_AFTER_OK"},
            ],
            "array": {"size": 10, "atOnce": 2},
            "project": "vision",
            "environment": {"A": "1", "B": "2"},
        },
    }
    assert convert.spec(json_format.ParseDict(message["spec"], job_pb2.JobSpec())) == spec
    assert sent(TryOut(spec)) == {"spec": message["spec"], "validateOnly": True}


def test_what_is_left_out_is_not_sent() -> None:
    for none in (float("nan"), float("inf")):
        with pytest.raises(sdk.InvalidArgument, match="is no number of CPUs"):
            job_spec(["a"], cpus=none)
    plain = job_spec(["a"], cpus=0, memory=0, export="NONE")
    assert sent(TryOut(plain)) == {**BASE, "validateOnly": True}
    assert job_spec(["a"]).resources == Resources(cpus=1, memory_mib=1024)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tasks": [TaskGroup(1)], "cpus": 1}, "say them in each group"),
        ({"array_at_once": 2}, "say its size in `array`"),
        ({"retry_exit_codes": [1]}, "say how often"),
        ({"time_limit": "soon"}, "'soon' is not a duration"),
        ({"estimate": -1}, "negative"),
        ({"priority": "high"}, "the job cannot be sent: priority='high' is no whole number"),
        ({"after_ok": ["x"]}, "after_ok='x' is no whole number"),
        ({"after_ok": [3, None], "after_any": "7"}, "a job waits for jobs, or for ids of jobs, and not for '7', None"),
        ({"env": {"LR": 1}}, "of the environment, 'LR' or its value 1 is not text; write it as a str"),
        ({"name": 7}, "the name 7 is not text"),
        ({"name": "a\udcff"}, r"'a\\udcff' is not UTF-8"),
        ({"memory": 1.5}, "1.5 is not an amount of memory"),
        ({"cpus": "2"}, "cpus: '2' is no number of CPUs"),
        ({"cpus": 1e30}, r"1e\+30 is too much for cpus"),
        ({"devices": 2**80}, "too much for devices"),
        ({"tasks": [TaskGroup("2")]}, "count='2' is no whole number"),
        ({"array": "10"}, "array='10' is no whole number"),
        ({"checkpoint_signal": "KILL"}, "no program can handle SIGKILL; take another signal, such as USR1"),
        ({"checkpoint_signal": "STOP@5"}, "no program can handle SIGSTOP"),
        ({"checkpoint_signal": "TERM"}, "SIGTERM is what a job gets without checkpoint_signal"),
        ({"checkpoint_signal": "B:USR1"}, "'B:USR1' is no checkpoint signal; those are HUP, INT, QUIT, USR1, USR2"),
        ({"checkpoint_signal": 10}, "'10' is no checkpoint signal"),
        ({"checkpoint_signal": "USR1@1m"}, "'1M' is no number of seconds from 1 to 99999; write it like USR1@60"),
        ({"checkpoint_signal": "USR1@"}, "'' is no number of seconds"),
        ({"checkpoint_signal": "USR1", "checkpoint_command": "true"}, "exclude each other"),
        ({"checkpoint_command": ["true"]}, r"the checkpoint_command \['true'\] is not text"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(sdk.InvalidArgument, match=said):
        encode(TryOut(job_spec(["a"], **options)))
    with pytest.raises(sdk.InvalidArgument, match="5 is no word of a command; write it as a str"):
        job_spec(["echo", 5])  # type: ignore[list-item]
    with pytest.raises(sdk.InvalidArgument, match="amount of memory"):
        TaskGroup(1, memory="lots")


def test_what_a_job_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As sbatch's --export says it. By default what tells which programs run, and nothing that is a secret."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    shell = {"PATH": "/venv/bin", "VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda", "CONDA_SHLVL": "1", "A": "1"}
    of_here = {"EBB_TOKEN": "s", "SHLVL": "2", "RANK": "3", "CUDA_VISIBLE_DEVICES": "0", "BASH_FUNC_f%%": "()", "B": "\udcff"}
    for name, value in (shell | of_here).items():
        monkeypatch.setenv(name, value)

    def of(export: Any = None, **env: str) -> tuple[dict[str, str], dict[str, str]]:
        spec = job_spec(["a"], export=export, env=env)
        encode(TryOut(spec))
        return dict(spec.inherited), dict(spec.environment)

    default = {name: value for name, value in shell.items() if name != "A"}
    assert of() == (default, {})
    assert of(A="2") == (default, {"A": "2"})
    assert of("NONE") == of([]) == ({}, {})
    assert of("ALL") == (shell, {})
    assert of("ALL,A=2") == (shell, {"A": "2"})
    assert of("A=2", A="3") == ({}, {"A": "3"})
    assert of("PATH, A, UNSET, B") == ({"PATH": "/venv/bin", "A": "1"}, {})
    assert of(["CONDA_*", "L=a,b"]) == ({"CONDA_PREFIX": "/conda", "CONDA_SHLVL": "1"}, {"L": "a,b"})
    monkeypatch.setenv("PATH", ".venv/bin:/usr/bin::.")
    assert of()[0]["PATH"] == f"{Path.cwd()}/.venv/bin:/usr/bin::.", "what is named from here is meant wherever the job runs"
    for wrong in ("", "PATH,,A", "NONE,A", "1A", "A B", "EBB_TOKEN", "*", "A?", "=x", 7, [7]):
        with pytest.raises(sdk.InvalidArgument):
            of(wrong)


def test_updates() -> None:
    assert sent(update(7, None, None, None, None, 5000)) == {"jobId": "7", "skipSteps": "5000"}
    assert sent(update(7, None, None, None, None)) == {"jobId": "7"}
    assert sent(update(7, 0, 0, [], 0)) == {
        "jobId": "7",
        "priority": 0,
        "timeLimit": "0s",
        "dependencies": {},
        "gracePeriod": "0s",
    }
    assert sent(update(7, None, None, None, "auto")) == {"jobId": "7", "graceFollows": True}
    assert sent(update(7, 0, 0, [], None)) == {"jobId": "7", "priority": 0, "timeLimit": "0s", "dependencies": {}}
    wanted = [sdk.Dependency(3, DependencyKind.AFTER_ANY)]
    assert sent(update(7, None, "90s", wanted, None)) == {
        "jobId": "7",
        "timeLimit": "90s",
        "dependencies": {"dependencies": [{"jobId": "3", "kind": "DEPENDENCY_KIND_AFTER_ANY"}]},
    }
    with pytest.raises(sdk.InvalidArgument, match="the change cannot be sent"):
        encode(update(7, 2**40, None, None, None))


def test_a_job_is_read_whole() -> None:
    answered = {
        "id": "9",
        "spec": BASE["spec"],
        "state": "JOB_STATE_SUSPENDED",
        "reason": "JOB_REASON_SUSPENDED",
        "priority": 3,
        "timeLimit": "60s",
        "runTime": "1.5s",
        "held": True,
        "suspendRequested": True,
        "retries": 2,
        "eligibleTime": "2026-01-02T03:04:05Z",
        "tasks": [
            {"rank": 1, "node": "n", "devices": [2, 3], "resources": {"cpuMilli": "1000", "devices": "2"}, "logPath": "/log"}
        ],
        "arrayJobId": "5",
        "arrayIndex": 0,
        "array": {"size": 9, "pending": 1, "live": 2, "succeeded": 3, "failed": 4},
    }
    job = convert.job(json_format.ParseDict(answered, job_pb2.Job()))
    assert (job.state, job.reason) == (sdk.JobState.SUSPENDED, JobReason.SUSPENDED)
    assert (job.priority, job.time_limit, job.run_time) == (3, timedelta(minutes=1), timedelta(seconds=1.5))
    assert (job.held, job.suspend_requested, job.retries) == (True, True, 2)
    assert job.eligible_time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    resources = Resources(cpus=1, devices=2)
    assert job.tasks == (sdk.Task(rank=1, node="n", devices=(2, 3), resources=resources, log_path="/log"),)
    assert (job.array_job_id, job.array_index) == (5, 0)
    assert job.array == sdk.ArrayStatus(size=9, pending=1, live=2, succeeded=3, failed=4)
    plain = convert.job(job_pb2.Job(id=1))
    assert (plain.array, plain.array_job_id, plain.array_index, plain.time_limit) == (None, None, None, None)


def test_an_explanation_is_read_whole() -> None:
    victim = {"jobId": "2", "user": "u", "node": "n", "resources": {"devices": "1"}, "gracePeriod": "30s", "score": 0.5}
    blocker = {
        "reason": "JOB_REASON_NO_ROOM",
        "detail": "why",
        "causeJobId": "3",
        "need": {"devices": "2"},
        "node": "n",
        "free": {"devices": "1"},
        "nodes": 4,
        "nodesUsable": 3,
        "nodesLargeEnough": 2,
    }
    explanation = {
        "blockers": [blocker],
        "ahead": 20,
        "aheadJobIds": ["3", "5"],
        "decision": {"trialJobId": "9", "rule": "fitgpp"},
        "victims": [victim],
        "estimate": {"time": "2026-01-02T03:04:05Z", "basis": "b", "runsOfUnknownLength": 1},
        "preempted": {"byJobId": "8", "byUser": "t", "time": "2026-01-02T03:04:05Z", "away": "60s", "deviceHours": 0.25},
        "configurationReason": "the fastest",
    }
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    answer = json_format.ParseDict({"job": {"id": "9"}, "explanation": explanation}, scheduler_pb2.ExplainResponse())
    why = convert_explanations.explanation(answer)
    assert why.job.id == 9
    assert why.blockers == (
        sdk.Blocker(
            reason=JobReason.NO_ROOM,
            detail="why",
            cause_job_id=3,
            need=Resources(devices=2),
            node="n",
            free=Resources(devices=1),
            nodes=4,
            nodes_usable=3,
            nodes_large_enough=2,
        ),
    )
    leaves = sdk.Victim(
        job_id=2, user="u", node="n", resources=Resources(devices=1), grace_period=timedelta(seconds=30), score=0.5
    )
    assert (why.ahead, why.ahead_job_ids, why.victims) == (20, (3, 5), (leaves,))
    assert why.decision is not None
    assert why.estimate == sdk.StartEstimate(time=at, basis="b", runs_of_unknown_length=1)
    assert why.configuration_reason == "the fastest"
    assert why.preempted == sdk.PreemptionCost(by_job_id=8, by_user="t", time=at, away=timedelta(minutes=1), device_hours=0.25)
    said = {"job": {}, "preview": {"victims": [victim]}}
    preview = convert_explanations.preview(json_format.ParseDict(said, scheduler_pb2.SubmitResponse()))
    assert (preview.starts, preview.victims, preview.explanation) == (False, (leaves,), None)


def test_a_node_is_read_whole() -> None:
    drain = {"reason": "fan", "user": "olga", "time": "2026-01-02T03:04:05Z"}
    node = convert_nodes.node(json_format.ParseDict({"name": "n", "drain": drain, "strikes": 2}, cluster_pb2.Node()))
    assert node.drain == sdk.NodeDrain(reason="fan", user="olga", time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert node.strikes == 2
    assert convert_nodes.node(cluster_pb2.Node()).drain is None


def test_a_number_of_tasks_is_a_gang_of_such() -> None:
    spec = job_spec(["a"], tasks=3, cpus=0.5, memory="2GiB", devices=1)
    assert (spec.task_groups, spec.resources) == ((TaskGroup(3, 1, 0.5, "2GiB"),), Resources())
    assert job_spec(["a"], tasks=2).task_groups == (TaskGroup(2),)
    assert job_spec(["a"], tasks=2, cell="socket", vc="v").task_groups == (TaskGroup(2, level="socket"),)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"command": None}, "None is no command; give it as a list of words"),
        ({"tasks": [{"count": 2}]}, r"tasks is a number, or a list such as \[TaskGroup\(4"),
        ({"tasks": "2"}, "tasks is a number"),
        ({"tasks": 2.5}, "tasks is a number"),
        ({"command": ["", "a"]}, "the program to run, is empty"),
        ({"within": 5}, "within is a level such as"),
        ({"within": ["rack", 5]}, "within is a level such as"),
        ({"env": ["A=b"]}, "env is a mapping such as"),
        ({"working_directory": 5}, "the working_directory, 5, is no path"),
        ({"retries": 1, "retry_exit_signals": ["SIGTERM"]}, "exit codes and signals are lists of numbers"),
    ],
)
def test_what_is_no_command_and_no_gang(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(sdk.InvalidArgument, match=why):
        job_spec(**({"command": ["a"]} | wrong))


def test_what_is_no_state() -> None:
    with testing.cluster() as fake, fake.client() as client:
        with pytest.raises(sdk.InvalidArgument, match="'FAILED' is no state of a job; write such as"):
            list(client.list(states=["FAILED"]))  # type: ignore[list-item]  # as in a notebook
        assert list(client.list(states=[sdk.JobState.FAILED])) == []


def test_lost_answers_are_asked_for_again() -> None:
    """Each of these calls is carried out twice."""

    def script(_: Job) -> Outcome | None:
        return None

    with testing.cluster(script=script) as fake, fake.client() as client:
        first, second, third = [client.submit(["a"], devices=8) for _ in range(3)]
        (node,) = client.nodes()
        for call, ask in {
            "Suspend": lambda: client.suspend(first),
            "Resume": lambda: client.resume(first),
            "Requeue": lambda: client.requeue(second),
            "Hold": lambda: client.hold(third),
            "Release": lambda: client.release(third),
            "Update": lambda: client.update(third, priority=3),
            "Explain": lambda: client.explain(third),
            "Drain": lambda: client.drain(node.name),
            "Undrain": lambda: client.undrain(node.name),
        }.items():
            fake.fail_next(call=call, after=True)
            ask()
            assert fake.calls[call] == 2, call
        states = [(job.state, job.run) for job in fake.jobs]
        assert states == [(sdk.JobState.RUNNING, 2), (sdk.JobState.QUEUED, 1), (sdk.JobState.QUEUED, 0)]
        assert client.get(third.id).priority == 3


def test_a_request_id_that_is_no_text_is_told_so() -> None:
    with pytest.raises(sdk.InvalidArgument, match=r"cannot be a request_id: '\\udcff' is not UTF-8"):
        encode(submit(job_spec(["a"]), "\udcff"))


@pytest.mark.parametrize("timeout", [None, "5m", float("nan"), timedelta(seconds=5)])
def test_a_client_is_told_at_once_that_its_timeout_is_none(timeout: Any) -> None:
    for kind in (sdk.Client, sdk.AsyncClient):
        with pytest.raises(sdk.InvalidArgument, match="is no number of seconds, such as 30"):
            kind(timeout=timeout)


def test_alternatives_are_sent_and_come_back() -> None:
    spec = job_spec(
        ["a"],
        devices=1,
        model="A100",
        device_memory="40GiB",
        memory="2GiB",
        exclude_nodes="n7",
        export="NONE",
        alternatives=[
            {"devices": 2, "model": "V100", "estimate": "3h", "nodes": ["n2", "n1"]},
            {"cpus": 16, "command": ["b", "--cpu"], "env": {"LR": "1"}, "node_labels": {"zone": "a"}, "exclude_nodes": ()},
            sdk.Configuration(resources=Resources(cpus=1)),
        ],
    )
    message = sent(Submit(spec, "r"))["spec"]
    needs = {"memoryMib": "2048"}
    assert message["cells"] == {"model": "A100"}
    assert message["deviceMemoryMib"] == "40960"
    assert message["alternatives"] == [
        {
            "resources": {"devices": "2"} | needs,
            "cells": {"model": "V100"},
            "estimate": "10800s",
            "nodes": {"names": ["n1", "n2"], "excluded": ["n7"]},
        },
        {
            "resources": {"cpuMilli": "16000"} | needs,
            "command": ["b", "--cpu"],
            "environment": {"LR": "1"},
            "nodes": {"labels": {"zone": "a"}},
        },
        {"resources": {"cpuMilli": "1000"}},
    ]
    assert convert.spec(json_format.ParseDict(message, job_pb2.JobSpec())) == spec
    assert [str(one) for one in spec.configurations] == ["1 A100", "2 V100", "16 CPUs", "1 CPUs"]


def test_a_gang_of_alternatives_takes_a_number_of_tasks_from_the_job() -> None:
    spec = job_spec(["a"], tasks=4, devices=1, cpus=2, alternatives=[{"devices": 2, "model": "K80"}, {"cpus": 8, "tasks": 1}])
    assert spec.alternatives[0].task_groups == (TaskGroup(4, devices=2, cpus=2),)
    assert spec.alternatives[1].task_groups == (TaskGroup(1, cpus=8),)


@pytest.mark.parametrize(
    ("alternative", "said"),
    [
        ({"gpus": 1}, "alternative 1: {'gpus': 1} is not one; it has some of: cpus, memory"),
        ("devices=1", "alternative 1: 'devices=1' is not one"),
        ({"memory": "much"}, "alternative 1: .*much"),
        ({"cell": "node"}, "alternative 1: cells and guarantees are those of a virtual cluster"),
    ],
)
def test_what_is_wrong_with_an_alternative_is_told_with_its_number(alternative: Any, said: str) -> None:
    with pytest.raises(sdk.InvalidArgument, match=said):
        job_spec(["a"], alternatives=[alternative])
