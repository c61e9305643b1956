"""What a job may be told to be: options, job files, and a submit that is only tried."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from client_sdk import (
    Array,
    Dependency,
    DependencyKind,
    Exit0AfterStop,
    JobClass,
    JobSpec,
    Resources,
    Retry,
    TaskGroup,
)
from client_sdk.testing import FakeCluster
from tests.sdk.cli.conftest import Run, refused, submitted


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


def test_what_an_exit_with_0_after_a_stop_means(run: Run, tmp_path: Path) -> None:
    assert submitted(run, "true").exit_0_after_stop is Exit0AfterStop.STOPPED
    assert submitted(run, "--exit-0-after-stop", "stopped", "true").exit_0_after_stop is Exit0AfterStop.STOPPED
    assert submitted(run, "--exit-0-after-stop", "done", "true").exit_0_after_stop is Exit0AfterStop.DONE
    assert "means done, also after a stop signal" in run("show", "3").output
    assert "means done" not in run("show", "1").output
    file = tmp_path / "job.yaml"
    file.write_text("command: [true.sh]\nexit_0_after_stop: done\n")
    assert submitted(run, "-f", str(file)).exit_0_after_stop is Exit0AfterStop.DONE
    file.write_text("command: [true.sh]\nexit_0_after_stop: 0\n")
    assert refused(run, "submit", "-f", str(file)) == f"ebb: {file}: exit_0_after_stop: 0 is unknown; it is stopped or done\n"


def test_how_a_program_is_asked_to_save(run: Run, tmp_path: Path) -> None:
    assert submitted(run, "--grace", "90s", "--checkpoint-signal", "SIGUSR1@60", "true").checkpoint_signal == "USR1@60"
    assert "by SIGUSR1, SIGTERM 60 s later" in run("show", "1").output
    assert submitted(run, "--checkpoint-command", "./save $EBB_PID", "true").checkpoint_command == "./save $EBB_PID"
    assert "by the command: ./save $EBB_PID" in run("show", "2").output
    file = tmp_path / "job.yaml"
    file.write_text("command: [true.sh]\ncheckpoint_signal: HUP\n")
    assert submitted(run, "-f", str(file)).checkpoint_signal == "HUP"
    assert "no program can handle SIGKILL" in refused(run, "submit", "--checkpoint-signal", "kill", "true")


def test_the_code_travels(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(name)
    monkeypatch.chdir(tmp_path / "here")
    here = submitted(run, "--snapshot", "python", "train.py")
    assert here.working_directory is None, "it starts in the snapshot"
    assert len(here.snapshots) == 1
    there = submitted(run, "--snapshot-dir", "../there", "python", "train.py")
    assert there.snapshots != here.snapshots
    assert f"snapshot     {there.snapshots[0][:12]}" in run("show", "2").output
    beside = submitted(run, "--snapshot", "--cwd", "/data", "python", "train.py")
    assert (beside.snapshots, beside.working_directory) == (here.snapshots, "/data")
    file = tmp_path / "job.yaml"
    file.write_text("command: [python, train.py]\nsnapshot: true\n")
    assert submitted(run, "-f", str(file)).snapshots == here.snapshots
    file.write_text("command: [python, train.py]\nsnapshot: ../there\n")
    assert submitted(run, "-f", str(file)).snapshots == there.snapshots
    assert submitted(run, "-f", str(file), "--snapshot").snapshots == here.snapshots
    assert "there is no directory" in refused(run, "submit", "--snapshot-dir", "nowhere", "true")
    assert run("submit", "--dry-run", "--snapshot", "true").exit_code == 0


def test_a_python_environment(run: Run, tmp_path: Path) -> None:
    spec = submitted(run, "--venv", "/shared/envs/torch", "--export", "PATH", "python", "train.py")
    assert spec.environment == {"VIRTUAL_ENV": "/shared/envs/torch"}
    assert spec.inherited["PATH"].startswith("/shared/envs/torch/bin:")
    spec = submitted(run, "--conda", "/shared/envs/torch", "--export", "NONE", "python", "train.py")
    assert spec.environment == {"CONDA_PREFIX": "/shared/envs/torch", "CONDA_DEFAULT_ENV": "/shared/envs/torch"}
    assert spec.inherited == {"PATH": "/shared/envs/torch/bin"}
    file = tmp_path / "job.yaml"
    file.write_text("command: [python, train.py]\nvenv: /shared/envs/torch\n")
    assert submitted(run, "-f", str(file)).environment == {"VIRTUAL_ENV": "/shared/envs/torch"}
    assert "exclude each other" in refused(run, "submit", "--venv", "/a", "--conda", "/b", "true")


def test_a_program_that_ebb_leaves_alone(run: Run, tmp_path: Path) -> None:
    assert "NO_EBB_HOOK" not in submitted(run, "true").environment
    assert "NO_EBB_HOOK" not in submitted(run, "--hook", "true").environment
    assert submitted(run, "--no-hook", "--env", "A=1", "true").environment == {"A": "1", "NO_EBB_HOOK": "1"}
    file = tmp_path / "hook.yaml"
    file.write_text("command: [true.sh]\nhook: false\n")
    assert submitted(run, "-f", str(file)).environment == {"NO_EBB_HOOK": "1"}
    assert submitted(run, "-f", str(file), "--hook").environment == {}


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
        (["-t", "30"], "--time-limit: '30' has no unit: write 30s for 30 seconds, or 30m for 30 minutes (as Slurm reads it)"),
        (["--grace", "90"], "--grace: '90' has no unit"),
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
estimate: 1h
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
    spec = submitted(run, "--export", "NONE", "-f", str(file))
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
    text = "command: [sleep]\ngrace: 0\ncwd: sub\nenv: [A=b, C]\n"
    piped = submitted(run, "-f", "-", input=text, env={"C": "d"})
    assert piped.grace_period == timedelta(0)
    assert (piped.working_directory, piped.environment) == (str(tmp_path / "sub"), {"A": "b", "C": "d"})


@pytest.mark.parametrize("key", ["time_limit", "grace", "estimate"])
def test_a_number_in_a_job_file_is_no_duration_as_on_the_command_line(run: Run, key: str) -> None:
    said = refused(run, "submit", "-f", "-", input=f"command: [a]\n{key}: 30\n")
    assert f"{key}: '30' has no unit: write 30s for 30 seconds, or 30m for 30 minutes" in said
    assert f"{key}: '1:30' is not a duration" in refused(run, "submit", "-f", "-", input=f"command: [a]\n{key}: 1:30\n")


def test_a_job_file_of_a_gang(run: Run) -> None:
    text = "command: [a]\ncpus: 2\ntasks:\n  - {count: 1, memory: 2GiB}\n  - {count: 2, cpus: 1, gpus: 1, command: [b, 1]}\n"
    assert submitted(run, "-f", "-", input=text).task_groups == (
        TaskGroup(1, cpus=2, memory="2GiB"),
        TaskGroup(2, devices=1, cpus=1, memory="7GiB", command=["b", "1"]),
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
        ("time_limit: .inf\n", "time_limit: '.inf' is not a duration"),
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
        "  0     n1    0        3 cpus, 7GiB, 1 device\n"
        "  1     n1    1        3 cpus, 7GiB, 1 device\n"
    )
    run("submit", "-q", "-g", "2", "sleep")
    array = run("submit", "--dry-run", "--array", "9", "true").output.splitlines()
    assert array[:2] == ["of its elements, the first:", "it would start at once:"]
    waits = run("submit", "--dry-run", "-g", "1", "true").output.splitlines()
    assert waits[:2] == ["it would wait: QUEUED: no room", "what keeps it from starting:"]
    assert waits[2] == (
        "  no room; it needs 3 cpus, 7GiB, 1 device, and n1, which comes closest, has 2 cpus, 2GiB free; "
        "of 2 nodes 2 can be used, and 1 would fit it when empty"
    )
    told = json.loads(run("submit", "--dry-run", "-g", "1", "-o", "json", "true").output)
    assert (told["starts"], told["job"]["id"]) == (False, 0)
    assert [blocker["reason"] for blocker in told["explanation"]["blockers"]] == ["NO_ROOM"]
    assert run("submit", "--dry-run", "-q", "true").output == ""
    assert len(fake.jobs) == 1
    assert "no node of this cluster has" in refused(run, "submit", "--dry-run", "-g", "9", "true")
