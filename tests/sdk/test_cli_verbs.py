"""The command line over the fake cluster: options, job files, and the verbs that change things."""

import contextlib
import json
import os
import pty
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from client_sdk import (
    Array,
    Client,
    Decision,
    Dependency,
    DependencyKind,
    Device,
    DeviceObservation,
    Explanation,
    Job,
    JobClass,
    JobReason,
    JobSpec,
    JobState,
    MemoryCycle,
    Observations,
    PreemptionCost,
    Resources,
    Retry,
    StartEstimate,
    TaskGroup,
    Victim,
    testing,
)
from client_sdk.cli import ebb, output
from client_sdk.testing import FakeCluster, Outcome
from tests.sdk.test_cli import start

Run = Callable[..., Result]


def script(job: Job) -> Outcome | None:
    return None if job.spec.command[0] == "sleep" else Outcome(exit_code=3 if job.spec.command[0] == "fail" else 0)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    nodes = {"n1": Resources(cpus=8, memory_mib=16 * 1024, devices=2), "n2": Resources(cpus=4, memory_mib=16 * 1024)}
    with testing.cluster(nodes, script=script, user="ada") as fake:
        yield fake


@pytest.fixture
def client(fake: FakeCluster) -> Client:
    return fake.client()


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("EBB_ADDRESS", fake.address)
    return lambda *arguments, **options: CliRunner().invoke(ebb, arguments, prog_name="ebb", **options)


def submitted(run: Run, *arguments: str, **options: Any) -> JobSpec:
    """The spec of a job that is submitted so."""
    done = run("submit", "-q", *arguments, **options)
    assert (done.exit_code, done.stderr) == (0, "")
    with Client() as client:
        return client.get(int(done.output)).spec


def refused(run: Run, *arguments: str, **options: Any) -> str:
    """What is said of a call that fails with 1."""
    done = run(*arguments, **options)
    assert (done.exit_code, done.stdout) == (1, "")
    return done.stderr


# ---- submit ------------------------------------------------------------------------------------------------------------


def test_options(run: Run) -> None:
    assert run("submit", "-q", "sleep").output == "1\n"
    spec = submitted(
        run,
        *(
            "--priority",
            "-7",
            "-t",
            "1h30m",
            "--estimate",
            "90s",
            "--retries",
            "2",
            "--retry-on",
            "75,SIGKILL",
            "--retry-on",
            "130",
        ),
        *("--after-ok", "1", "--after-any", "1,1", "--array", "10%2", "true"),
    )
    assert (spec.priority, spec.time_limit, spec.estimate) == (-7, timedelta(minutes=90), timedelta(seconds=90))
    assert spec.retry == Retry(2, (75, 130, 137), (2, 9))
    assert spec.dependencies == (Dependency(1), Dependency(1, DependencyKind.AFTER_ANY))
    assert spec.array == Array(10, 2)
    assert submitted(run, "--array", "0-3", "true").array == Array(4, 0)


def test_gangs(run: Run) -> None:
    alike = submitted(run, "--tasks", "3", "--cpus", "0.5", "--memory", "2GiB", "true")
    assert alike.task_groups == (TaskGroup(3, cpus=0.5, memory="2GiB"),)
    groups = submitted(
        run, "--cpus", "2", "--task", "1", "--task", "2:gpus=1, cpus=1,memory=512MiB", "--task", "1:devices=0", "true"
    )
    assert groups.task_groups == (
        TaskGroup(1, cpus=2),
        TaskGroup(2, devices=1, cpus=1, memory=512),
        TaskGroup(1, cpus=2),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--time-limit", "soon"], "--time-limit: 'soon' is not a duration"),
        (["--retry-on", "SIGFOO", "--retries", "1"], "--retry-on: 'SIGFOO' is no exit code and no signal"),
        (["--retry-on", "0", "--retries", "1"], "--retry-on: 0 is no exit code of a failure"),
        (["--retry-on", "3"], "say how often a run that fails so"),
        (["--array", "1-5"], "--array: '1-5' is no array"),
        (["--after-ok", "x"], "--after-ok: 'x' is not a whole number"),
        (["--after-ok", "0"], "--after-ok: ids of jobs are whole numbers from 1"),
        (["--task", "two:cpus=1"], "--task: 'two' is not a whole number"),
        (["--task", "2:cpu=1"], "--task: 'cpu' is no key of a group of tasks (did you mean 'cpus'?)"),
        (["--task", "2:cpus"], "--task: '2:cpus': 'cpus' has no value"),
        (["--task", "2:cpus=many"], "--task: cpus: 'many' is not a number"),
        (["--env", "NOT_SET_HERE"], "--env: NOT_SET_HERE is not set here"),
    ],
)
def test_options_that_cannot_be_read(run: Run, options: list[str], said: str) -> None:
    assert refused(run, "submit", *options, "true").startswith(f"ebb: {said}")


def test_calls_that_are_wrong(run: Run) -> None:
    for arguments in (["--tasks", "2", "--task", "2"], ["--dry-run", "--wait"], ["--dry-run", "--request-id", "r"]):
        assert run("submit", *arguments, "true").exit_code == 2
    assert run("submit", "--priority", "1001", "true").exit_code == 2


WHOLE = """
name: resnet
command: [python, train.py, --lr, 0.1, --steps, 1000]
class: trial
cpus: 0.5
memory: 512
gpus: 1
grace: 2m
time-limit: 1d
estimate: 3600
priority: 10
retries: 3
retry_on: [75, SIGKILL]
after_ok: 1
array: 10%2
env: {LR: 0.1, NAME: x y}
cwd: /data/resnet
"""


def test_a_job_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("submit", "-q", "sleep")
    file = tmp_path / "job.yaml"
    file.write_text(WHOLE)
    spec = submitted(run, "-f", str(file))
    assert spec == JobSpec(
        name="resnet",
        command=("python", "train.py", "--lr", "0.1", "--steps", "1000"),
        job_class=JobClass.TRIAL,
        resources=Resources(cpus=0.5, memory_mib=512, devices=1),
        grace_period=timedelta(minutes=2),
        time_limit=timedelta(days=1),
        estimate=timedelta(hours=1),
        priority=10,
        retry=Retry(3, (75, 137), (9,)),
        dependencies=(Dependency(1),),
        array=Array(10, 2),
        environment={"LR": "0.1", "NAME": "x y"},
        working_directory="/data/resnet",
    )
    options = ["--name", "other", "--gpus", "2", "--best-effort", "--env", "LR=1", "--cwd", "/", "--after-any", "1"]
    changed = submitted(run, "-f", str(file), *options, "--", "sleep", "-x")
    assert (changed.name, changed.command, changed.resources.devices) == ("other", ("sleep", "-x"), 2)
    assert (changed.job_class, changed.environment) == (JobClass.BEST_EFFORT, {"LR": "1", "NAME": "x y"})
    assert (changed.working_directory, changed.priority) == ("/", 10)
    monkeypatch.chdir(tmp_path)
    piped = submitted(run, "-f", "-", input="command: [sleep]\ncwd: sub\nenv: [A=b, C]\n", env={"C": "d"})
    assert (piped.working_directory, piped.environment) == (str(tmp_path / "sub"), {"A": "b", "C": "d"})


def test_a_job_file_of_a_gang(run: Run) -> None:
    text = "command: [a]\ncpus: 2\ntasks:\n  - {count: 1, memory: 2GiB}\n  - {count: 2, cpus: 1, gpus: 1, command: [b, 1]}\n"
    assert submitted(run, "-f", "-", input=text).task_groups == (
        TaskGroup(1, cpus=2, memory="2GiB"),
        TaskGroup(2, devices=1, cpus=1, command=["b", "1"]),
    )
    assert submitted(run, "-f", "-", input="command: [a]\ntasks: 2\n").task_groups == (TaskGroup(2),)
    assert submitted(run, "-f", "-", "--task", "3", input=text).task_groups == (TaskGroup(3, cpus=2),)


def test_numbers_of_a_job_file_are_words_as_they_stand(run: Run) -> None:
    text = "command: [a, 010, 12:30:00, 1.10, 1e400, 3]\nenv: {LR: 0.00001, N: 010}\ncpus: 1.50\npriority: 010\n"
    spec = submitted(run, "-f", "-", input=text)
    assert spec.command == ("a", "010", "12:30:00", "1.10", "1e400", "3")
    assert (spec.environment, spec.resources.cpus, spec.priority) == ({"LR": "0.00001", "N": "010"}, 1.5, 8)


def test_from_a_folder_that_is_gone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert submitted(run, "--cwd", "/tmp/..", "a").working_directory == "/"
    assert "the folder that you are in is not there any more" in refused(run, "submit", "a")


def test_the_job_file_in_the_help_is_one(run: Run) -> None:
    example = re.search(r"# job\.yaml\n(.*?)\n\n", run("submit", "--help").output, re.DOTALL)
    assert example is not None
    for _ in range(7):
        run("submit", "-q", "sleep")
    spec = submitted(run, "--cpus", "1", "--memory", "1GiB", "--tasks", "1", "-f", "-", input=example[1])
    assert (spec.name, spec.priority, spec.dependencies) == ("resnet", 10, (Dependency(7),))
    assert len(yaml.safe_load(example[1])["tasks"]) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memroy: 1GiB\n", "'memroy' is no key of a job file (did you mean 'memory'?)"),
        ("xyz: 1\n", "'xyz' is no key of a job file; those are command, name, class, cpus"),
        (f"priority: {'1' * 5000}\n", "it is not YAML: Exceeds the limit"),
        ("cpus: lots\n", "cpus: 'lots' is not a number"),
        ("cpus: true\n", "cpus: True is not a number"),
        ("devices: 1.5\n", "devices: 1.5 is not a whole number"),
        ("gpus: 1\ndevices: 1\n", "'devices' is said twice"),
        ("class: fast\n", "class: 'fast' is no class of jobs; it is trial or best-effort"),
        ("grace: [1]\n", "grace: [1] is not a duration"),
        ("grace: true\n", "grace: True is not a duration"),
        ("time_limit: .inf\n", "time_limit: inf is too long"),
        ("name: 7\n", "name: 7 is not text; put it in quotes"),
        ("env: {DEBUG: yes}\n", "env: DEBUG: True is not text; put it in quotes"),
        ("tasks: []\n", "tasks: a gang has at least one group"),
        ("tasks: [{cpus: 1}]\n", "tasks: a group of tasks needs a count"),
        ("tasks: [{count: 1, gpu: 1}]\n", "tasks: 'gpu' is no key of a group of tasks (did you mean 'gpus'?)"),
        ("tasks: 0\n", "tasks: 0 tasks are none"),
        ("array: ten\n", "array: 'ten' is no array"),
        ("command: ls -l\n", "command: 'ls -l' is not a list of words"),
        ("command: [ls, true]\n", "command: True is not a word; put it in quotes"),
        ("a: b: c\n", "line 1: it is not YAML"),
        ("cpus: 1\ndevices: 2\ncpus: 4\n", "line 3: it is not YAML: 'cpus' is given twice"),
        ("env:\n  SEED: 1\n  SEED: 2\n", "line 3: it is not YAML: 'SEED' is given twice"),
        ("- a\n", "a job file has keys and values"),
    ],
)
def test_a_job_file_that_is_wrong(run: Run, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text if "command" in text or ":" not in text else f"{text}command: [true_]\n")
    told = refused(run, "submit", "-f", str(file))
    assert told.startswith(f"ebb: {file}")
    assert said in told
    assert "unexpected" not in told


def test_a_job_file_without_a_command(run: Run) -> None:
    missing = run("submit", "-f", "-", input="name: x\n")
    assert missing.exit_code == 2
    assert "has no command" in missing.stderr
    assert run("submit", "-f", "/no/such/file").exit_code == 2


def test_dry_run(run: Run, fake: FakeCluster) -> None:
    assert run("submit", "--dry-run", "--tasks", "2", "--devices", "1", "true").output == (
        "it would start at once:\n"
        "  TASK  NODE  DEVICES  HOLDS\n"
        "  0     n1    0        1 cpu, 1GiB, 1 device\n"
        "  1     n1    1        1 cpu, 1GiB, 1 device\n"
    )
    run("submit", "-q", "-g", "2", "sleep")
    array = run("submit", "--dry-run", "--array", "9", "true").output.splitlines()
    assert array[:2] == ["of its elements, the first:", "it would start at once:"]
    waits = run("submit", "--dry-run", "-g", "1", "true").output.splitlines()
    assert waits[:2] == ["it would wait: QUEUED: no room", "what keeps it from starting:"]
    assert waits[2] == (
        "  no room; it needs 1 cpu, 1GiB, 1 device, and n1, which comes closest, has 7 cpus, 15GiB free; "
        "of 2 nodes 2 can be used, and 1 would fit it when empty"
    )
    told = json.loads(run("submit", "--dry-run", "-g", "1", "-o", "json", "true").output)
    assert (told["starts"], told["job"]["id"]) == (False, 0)
    assert [blocker["reason"] for blocker in told["explanation"]["blockers"]] == ["NO_ROOM"]
    assert run("submit", "--dry-run", "-q", "true").output == ""
    assert len(fake.jobs) == 1
    assert "no node of this cluster has" in refused(run, "submit", "--dry-run", "-g", "9", "true")


# ---- the verbs ---------------------------------------------------------------------------------------------------------


def test_suspend_and_resume_several(run: Run, client: Client) -> None:
    for _ in range(2):
        run("submit", "-q", "sleep")
    some = run("suspend", "1", "9", "2")
    assert some.exit_code == 1
    assert some.stdout == "job 1 is STOPPING (suspended)\njob 2 is STOPPING (suspended)\n"
    assert some.stderr.startswith("ebb: job 9: there is no job 9")
    assert len(some.stderr.splitlines()) == 1
    assert run("list", "-q", "-s", "S").output == "2\n1\n"
    assert run("resume", "-q", "1").output == "1\n"
    (shown,) = json.loads(run("resume", "2", "-o", "json").output)
    assert (shown["id"], shown["reason"]) == (2, "RESUMED")
    assert client.get(1).run == 2
    again = run("resume", "1", "2")
    assert (again.exit_code, again.stdout) == (1, "")
    assert len(again.stderr.splitlines()) == 2


def test_hold_release_and_update(run: Run, client: Client) -> None:
    run("submit", "-q", "-g", "2", "sleep")
    run("submit", "-q", "-g", "2", "true")
    assert run("hold", "2").output == "job 2 is QUEUED (held)\n"
    changed = run("update", "2", "--priority", "5", "--time-limit", "2h", "--after-any", "1")
    assert changed.output == "job 2 is QUEUED (held): priority 5, time limit 2:00:00\n"
    assert run("release", "2").output == "job 2 is QUEUED (dependency 1)\n"
    assert "submitted to run" not in run("show", "2").output
    assert run("update", "2", "--time-limit", "0", "--no-dependencies", "-q").output == "2\n"
    job = client.get(2)
    assert (job.priority, job.time_limit, job.reason) == (5, None, JobReason.NO_ROOM)
    assert run("update", "2").exit_code == 2
    assert run("update", "2", "--no-dependencies", "--after-ok", "1").exit_code == 2
    assert refused(run, "update", "2", "--after-ok", "x").startswith("ebb: --after-ok: 'x'")
    assert refused(run, "update", "1", "--after-ok", "2").startswith("ebb: job 1 is RUNNING and cannot be given")


def test_requeue_and_cancel(run: Run, client: Client) -> None:
    run("submit", "-q", "sleep")
    assert run("requeue", "1").output == "job 1 is STOPPING (requeued)\n"
    assert client.get(1).run == 2
    assert run("cancel", "1").output == "job 1 was asked to stop, and is STOPPING\n"
    assert client.get(1).state is JobState.CANCELLED


def test_lists_by_slurms_codes(run: Run, fake: FakeCluster, client: Client) -> None:
    victim, trial = client.submit(["sleep"], devices=2), client.submit(["sleep"], devices=2, job_class="trial")
    fake.preempt(victim, for_=trial)
    behind = client.submit(["sleep"], devices=2)
    assert run("list", "-q", "-s", "PR").output == f"{victim.id}\n"
    assert run("list", "-q", "-s", "PD").output == f"{behind.id}\n{victim.id}\n"
    assert run("list", "-q", "-s", "PR,R").output == f"{trial.id}\n{victim.id}\n"
    assert run("list", "-q", "-s", "TO,OOM").output == ""


def test_lists_and_shows_arrays_and_limits(run: Run) -> None:
    run("submit", "-q", "--array", "3%1", "--priority", "4", "-t", "90s", "--retries", "1", "sleep")
    wide = run("list", "-o", "wide", "--no-header").output.splitlines()
    assert "  4  1:30  1[0]  " in wide[0]
    assert "  3: 2 pending, 1 live, 0 succeeded, 0 failed  " in wide[1]
    lines = [re.split("  +", line, maxsplit=1) for line in run("show", "1").output.splitlines()]
    assert ["reason", "array limit"] in lines
    assert ["array", "3: 2 pending, 1 live, 0 succeeded, 0 failed"] in lines
    assert ["priority", "4"] in lines
    assert ["time limit", "1:30, of which runs that are over took 0:00"] in lines
    assert ["retries", "0 of 1"] in lines
    assert "array limit: 1 of its elements have begun and not ended" in run("explain", "1").output
    run("submit", "-q", "--task", "2:cpus=2", "sleep")
    gang = run("show", "3").output.splitlines()
    assert gang[-3:] == ["TASK  NODE  DEVICES  HOLDS", "0     n1    -        2 cpus, 1GiB", "1     n1    -        2 cpus, 1GiB"]


def test_explain(run: Run, fake: FakeCluster, client: Client) -> None:
    victim, trial = client.submit(["sleep"], devices=2), client.submit(["sleep"], devices=2, job_class="trial")
    fake.preempt(victim, for_=trial)
    behind = client.submit(["sleep"], devices=1)
    assert run("explain", str(trial.id)).output == "job 2 is RUNNING on n1\nnothing keeps it from running\n"
    lines = run("explain", str(victim.id)).output.splitlines()
    assert lines[0] == "job 1 is QUEUED: preempted for 2"
    assert lines[2].startswith(
        "  no room; it needs 1 cpu, 1GiB, 2 devices, and n1, which comes closest, has 7 cpus, 15GiB free;"
    )
    assert lines[3] == "when it may start is not known: a fake cluster foresees nothing"
    assert re.fullmatch(r"last preempted at [0-9: -]+, for trial 2 of ada: it has not started again since", lines[4])
    lines = run("explain", str(behind.id)).output.splitlines()
    assert lines[:3] == ["job 3 is QUEUED: behind 1", "what keeps it from starting:", "  behind 1: 1 job is before it"]
    assert "ahead of it: 1" in lines
    told = json.loads(run("explain", "3", "-o", "json").output)
    assert (told["job"]["id"], told["ahead_job_ids"]) == (3, [1])
    assert yaml.safe_load(run("explain", "3", "-o", "yaml").output) == told
    assert refused(run, "explain", "9").startswith("ebb: there is no job 9")


def test_an_explanation_with_everything(run: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = client.submit(["sleep"], devices=2)
    at = datetime(2020, 1, 2, tzinfo=UTC)
    one = Resources(cpus=1, memory_mib=1024, devices=1)
    victim = Victim(job_id=4, user="bob", node="n1", resources=one, grace_period=timedelta(seconds=30), score=0.25)
    decision = Decision(
        trial_job_id=1,
        node="n1",
        demand=one,
        rule="fitgpp",
        s=4,
        cap=1,
        max_size=1,
        max_grace_period=timedelta(seconds=30),
        considered=3,
        candidates=(),
    )
    why = Explanation(
        job=job,
        ahead=20,
        ahead_job_ids=(2, 3),
        victims=(victim,),
        decision=decision,
        estimate=StartEstimate(time=at, basis="guesses", runs_of_unknown_length=2),
        preempted=PreemptionCost(by_job_id=8, by_user="eve", time=at, away=timedelta(seconds=95), device_hours=0.0528),
    )
    monkeypatch.setattr(Client, "explain", lambda _self, _job: why)
    when = at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert run("explain", "1").output.splitlines()[1:] == [
        "ahead of it: 2, 3 and 18 more",
        "these runs leave for it, or would have to:",
        "  JOB  USER  NODE  HOLDS                  GRACE  SCORE",
        "  4    bob   n1    1 cpu, 1GiB, 1 device  30s    0.2500",
        "  by fitgpp: 3 runs considered, s 4, cap 1",
        f"it may start at {when} (by guesses; 2 runs are of unknown length)",
        f"last preempted at {when}, for trial 8 of eve: it was away for 1:35, 0.05 device-hours",
    ]


def test_a_story_of_the_new_events(run: Run, client: Client) -> None:
    failed = client.submit(["fail"])
    array = client.submit(["fail"], array=1, after_failed=failed, retries=1)
    told = [line.split("  ", 1)[1] for line in run("story", str(array.id + 1)).output.splitlines()]
    assert told[0] == f"submitted - element 0 of array {array.id}"
    assert told[3] == "back in the queue: retrying"
    assert run("story", str(array.id)).output.splitlines()[-1].endswith("  ended, elements failed")


# ---- nodes -------------------------------------------------------------------------------------------------------------


def test_nodes_are_drained_and_opened(run: Run, client: Client) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    drained = run("node", "drain", "n1", "n9", "n2", "--reason", "fan broken")
    assert drained.exit_code == 1
    first, second = drained.stdout.splitlines()
    assert first.startswith("node n1 is DRAINING: fan broken, by ada at 20")
    assert second.startswith("node n2 is DRAINED: ")
    assert drained.stderr.startswith("ebb: node n9: there is no node n9")
    listed = run("node", "list", "-o", "wide").output.splitlines()
    assert [line.split()[:2] for line in listed] == [["NAME", "STATE"], ["n1", "DRAINING"], ["n2", "DRAINED"]]
    assert "fan broken, by ada" in listed[1]
    run("node", "drain", "n1", "--evict", "--reason", "fan broken", "-q")
    assert "  told to leave (run 1): n1 is drained - fan broken\n" in run("story", "1").output
    assert client.get(1).reason is JobReason.NODE_DRAINED
    (shown,) = json.loads(run("node", "undrain", "n1", "-o", "json").output)
    assert (shown["name"], shown["drain"]) == ("n1", None)
    assert run("node", "undrain", "n2", "-q").output == "n2\n"
    assert client.get(1).state is JobState.RUNNING


def test_a_node_is_shown(run: Run) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    lines = run("node", "show", "n1").output.splitlines()
    assert lines[0] == "name       n1"
    assert lines[1].startswith("state      UP since ")
    assert "free       7 cpus, 15GiB, 1 device" in lines
    assert "observed   -" in lines
    assert lines[-3:] == [
        "DEVICE  MODEL  JOBS",
        "0       Fake   1",
        "1       Fake   -",
    ]
    assert "earmarked  -" in lines
    assert run("node", "show", "n1", "-o", "wide").output.splitlines()[-2:] == [
        "0       Fake   n1-0  1",
        "1       Fake   n1-1  -",
    ]
    assert json.loads(run("node", "show", "n1", "-o", "json").output)["devices"][0]["job_ids"] == [1]
    assert refused(run, "node", "show", "n9").startswith("ebb: there is no node n9")


def test_a_fence_is_asked_about(run: Run) -> None:
    unasked = run("node", "fence", "n1")
    assert unasked.exit_code == 2
    assert "--yes" in unasked.stderr
    assert refused(run, "node", "fence", "--yes", "n1").startswith("ebb: node n1 is up: only a silent node")


def test_nodes_are_deleted_by_name(run: Run) -> None:
    said = refused(run, "node", "delete", "n1", "n9").splitlines()
    assert said[0].startswith("ebb: node n1 is up: stop its agent first")
    assert said[1].startswith("ebb: node n9: there is no node n9")


def test_top_prints_once(run: Run) -> None:
    run("submit", "-q", "-n", "big", "-g", "2", "sleep")
    run("submit", "-q", "-g", "2", "sleep")
    seen = run("top", "-n", "1")
    lines = seen.output.splitlines()
    assert lines[0].endswith("  2 nodes, 1 QUEUED, 1 RUNNING")
    assert lines[2].split() == ["NAME", "STATE", "CPUS", "MEMORY", "DEVICES", "EARMARKED", "JOBS"]
    assert lines[3].split() == ["n1", "UP", "7/8", "15GiB/16GiB", "0/2", "-", "1"]
    assert lines[6].split()[:5] == ["ID", "NAME", "USER", "CLASS", "STATE"]
    assert lines[7].split()[:8] == ["1", "big", "ada", "best-effort", "RUNNING", "-", "n1", "1"]
    assert len(lines) == 8
    twice = run("top", "-n", "2", "-d", "0.1")
    assert twice.output.count("2 nodes") == 2


def on_a_terminal(address: str, *arguments: str, answer: bytes = b"", columns: int = 150) -> tuple[int, str]:
    """The exit status of `ebb`, and what it shows on a terminal, where a question is answered so."""
    master, slave = pty.openpty()
    with start(
        *arguments, stdin=slave, stdout=slave, stderr=slave, more={"EBB_ADDRESS": address, "COLUMNS": str(columns)}
    ) as process:
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # which says that the other end is closed
            while more := os.read(master, 65536):
                shown += more
                if answer and b"[y/N]" in shown:
                    os.write(master, answer)
                    answer = b""
        os.close(master)
        return process.wait(30), shown.decode()


def test_top_on_a_terminal(fake: FakeCluster, client: Client) -> None:
    client.submit(["sleep"], name="big", devices=2)
    status, shown = on_a_terminal(fake.address, "top", "-n", "2", "-d", "0.1")
    assert status == 0
    assert re.search(r"1 +big +ada +best-effort +.*RUNNING", shown)


def test_a_fence_is_asked_about_on_a_terminal(fake: FakeCluster) -> None:
    status, shown = on_a_terminal(fake.address, "node", "fence", "n1", answer=b"n\n")
    assert (status, "Is it certain that nothing runs on n1 any more?" in shown) == (1, True)
    assert fake.calls["Fence"] == 0
    status, shown = on_a_terminal(fake.address, "node", "fence", "n1", answer=b"y\n")
    assert (status, "node n1 is up" in shown) == (1, True)


def test_what_is_seen_of_a_node_is_shown(run: Run, fake: FakeCluster) -> None:
    run("submit", "-q", "-g", "2", "sleep")
    found = MemoryCycle(
        job_id=1, run=1, device=0, period=timedelta(seconds=1.2345), minimum_mib=300, maximum_mib=23 * 1024, confidence=0.987
    )
    hidden = MemoryCycle(job_id=1, run=1, device=1, minimum_mib=5, maximum_mib=6)
    healthy = DeviceObservation(index=0, memory_used_mib=23 * 1024, utilisation_percent=97)
    lost = DeviceObservation(index=1, fault="XID 79: the GPU has fallen off the bus")
    seen = Observations(time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), devices=(healthy, lost), cycles=(found,))
    fake.observe("n1", seen)
    lines = run("node", "show", "n1").output.splitlines()
    assert f"observed   {output.when(seen.time)}" in lines
    assert lines[-10:] == [
        "",
        "DEVICE  MODEL  USED   UTIL  JOBS",
        "0       Fake   23GiB  97%   1",
        "1       Fake   -      -     1",
        "",
        "FAULTY  UUID  FAULT",
        "1       n1-1  XID 79: the GPU has fallen off the bus",
        "",
        "RUN  DEVICE  PERIOD  MIN     MAX    CONFIDENCE  SOURCE",
        "1.1  0       1.23 s  300MiB  23GiB  0.99        NVML",
    ]
    fake.observe("n1", replace(seen, cycles=(found, hidden)))
    lines = run("node", "show", "n1").output.splitlines()
    assert "1.1  1       unknown  5MiB    6MiB   -           NVML" in lines
    assert lines[-3].startswith("unknown: the driver shows no cycle.")
    assert max(map(len, lines)) <= 80
    told = json.loads(run("node", "show", "n1", "-o", "json").output)
    assert yaml.safe_load(run("node", "show", "n1", "-o", "yaml").output) == told
    assert told["devices"][1]["fault"] == lost.fault
    assert (told["devices"][0]["numa_node"], told["devices"][0]["link_domain"]) == (None, None)
    assert told["observations"]["time"] == "2026-01-02T03:04:05Z"
    assert told["observations"]["devices"][0] == {
        "index": 0,
        "memory_used_mib": 23 * 1024,
        "utilisation_percent": 97,
        "fault": "",
    }
    assert [(cycle["period"], cycle["source"]) for cycle in told["observations"]["cycles"]] == [
        (1.2345, "NVML"),
        (None, "NVML"),
    ]


def test_where_a_device_is_is_shown(run: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = (
        Device(index=0, uuid="GPU-a", model="H100", memory_mib=81920, path=(0, 1), numa_node=0, link_domain=0),
        Device(index=1, uuid="GPU-b", model="H100", memory_mib=81920, path=(1, 0), fault="it is hot"),
    )
    node = replace(client.node("n1"), levels=("socket", "switch"), devices=devices)
    monkeypatch.setattr(Client, "node", lambda _self, _name: node)
    table = [line.split() for line in run("node", "show", "n1").output.splitlines()[-6:]]
    assert table == [
        ["DEVICE", "MODEL", "MEMORY", "SOCKET", "SWITCH", "LINKS", "JOBS"],
        ["0", "H100", "80GiB", "0", "1", "0", "-"],
        ["1", "H100", "80GiB", "1", "0", "-", "-"],
        [],
        ["FAULTY", "UUID", "FAULT"],
        ["1", "GPU-b", "it", "is", "hot"],
    ]
    wide = [line.split() for line in run("node", "show", "n1", "-o", "wide").output.splitlines()[-6:-3]]
    assert wide == [
        ["DEVICE", "MODEL", "MEMORY", "SOCKET", "SWITCH", "LINKS", "NUMA", "UUID", "JOBS"],
        ["0", "H100", "80GiB", "0", "1", "0", "0", "GPU-a", "-"],
        ["1", "H100", "80GiB", "1", "0", "-", "-", "GPU-b", "-"],
    ]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_no_number_is_cut_off_where_the_terminal_is_narrow(fake: FakeCluster, columns: int) -> None:
    seen = tuple(DeviceObservation(index=index, memory_used_mib=used) for index, used in enumerate((12345, 7)))
    fake.observe("n1", Observations(time=datetime(2026, 1, 2, tzinfo=UTC), devices=seen))
    for arguments, needles in (
        (("node", "show", "n1", "-o", "wide"), ("12.1GiB", "7MiB", "n1-0", "n1-1", "JOBS")),
        (("node", "list", "-o", "wide"), ("8/8", "16GiB/16GiB", "DRAIN", "Fake")),
    ):
        status, shown = on_a_terminal(fake.address, *arguments, columns=columns)
        assert status == 0
        for needle in needles:
            assert needle in shown, (arguments, shown)
