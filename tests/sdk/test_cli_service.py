"""The command line's main verbs over a scheduler and an agent that are processes."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from client_sdk import Client, JobReason, JobState, NodeState
from client_sdk.cli import ebb
from examples.cluster import Cluster
from tests.harness import quick_cluster
from tests.sdk.fake import until
from tests.store.fixtures import short_dir

LIMIT = 60.0
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"EBB_SCHEDULER_HEARTBEAT": "0.5", "EBB_SCHEDULER_SILENT_AFTER": "2", "EBB_SCHEDULER_RETRY_PAUSE": "0.1"}
    with short_dir() as folder, quick_cluster(folder, environment=settings) as cluster:
        cluster.start_scheduler()
        cluster.start_agent("node-1", "cpu-20c")
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.address, timeout=LIMIT) as client:
        until(lambda: [node.state for node in client.nodes()] == [NodeState.UP], LIMIT)
        yield client
        for job in client.list(states=[state for state in JobState if state and not state.ended]):
            client.cancel(job)
            client.wait(job, LIMIT)


@pytest.fixture
def run(client: Client, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("EBB_ADDRESS", client.address)

    def call(*arguments: str, **options: Any) -> Result:
        done = CliRunner().invoke(ebb, ["--timeout", "30", *arguments], prog_name="ebb", **options)
        assert "unexpected" not in done.stderr, done.stderr
        return done

    return call


def stands(client: Client, job_id: int, state: JobState, run: int = 0) -> None:
    """Waits until the job is in that state, in that run if one is given."""
    for update in client.watch(job_id, timeout=LIMIT):
        if any(job.state is state and job.run >= run for job in update.jobs):
            return
    raise AssertionError(f"job {job_id} has ended without being {state.name}")


def test_a_job_is_suspended_resumed_and_requeued(run: Run, client: Client) -> None:
    job_id = int(run("submit", "-q", "--priority", "3", "--time-limit", "1h", "sleep", "600").output)
    stands(client, job_id, JobState.RUNNING)
    lost = run("suspend", "--force", str(job_id)).output
    assert lost.startswith(f"job {job_id} is STOPPING (suspended); it has never saved, and loses the work of its run (")
    stands(client, job_id, JobState.SUSPENDED)
    assert run("list", "-q", "-s", "S").output == f"{job_id}\n"
    assert "it does not return by itself: resume it" in run("explain", str(job_id)).output
    assert run("resume", "-q", str(job_id)).output == f"{job_id}\n"
    stands(client, job_id, JobState.RUNNING, 2)
    run("requeue", "--force", str(job_id))
    stands(client, job_id, JobState.RUNNING, 3)
    changed = run("update", str(job_id), "--priority", "4", "--time-limit", "2h")
    assert changed.output == f"job {job_id} is RUNNING: priority 4, time limit 2:00:00, grace period 0:30\n"
    told = run("story", str(job_id)).output
    assert "priority 3 -> 4; time limit 3600 s -> 7200 s" in told
    assert "NAME    STATE" in run("top", "-n", "1").output


@pytest.mark.parametrize(
    ("option", "at_the_signal", "state", "rule"),
    [
        ("stopped", "exit 0", "SUSPENDED", "exited with code 0 after the stop signal, without a word that its work is done"),
        ("done", "exit 0", "SUCCEEDED", "the job says that this means done (exit_0_after_stop)"),
        ("stopped", "echo $$ >$EBB_DONE_FILE; exit 0", "SUCCEEDED", "it had said in EBB_DONE_FILE that its work is done"),
    ],
)
def test_what_an_exit_with_0_after_a_stop_signal_means(
    run: Run, client: Client, option: str, at_the_signal: str, state: str, rule: str
) -> None:
    script = f"trap '{at_the_signal}' TERM; echo trapped; while :; do sleep 0.05; done"
    job_id = int(run("submit", "-q", "--exit-0-after-stop", option, "--", "sh", "-c", script).output)
    assert next(iter(client.logs(job_id, follow=True))) == "trapped\n"
    run("suspend", str(job_id))
    stands(client, job_id, JobState[state])
    assert rule in run("story", str(job_id)).output


def test_a_job_file_with_retries_and_an_array(run: Run) -> None:
    text = "command: [sh, -c, 'test $EBB_RUN = 2 || exit 9']\nretries: 3\nretry_on: 9\narray: 3%2\n"
    done = run("submit", "-f", "-", "--wait", "-o", "json", input=text)
    assert done.exit_code == 0, done.output
    array = json.loads(done.output)
    assert (array["state"], array["array"]["succeeded"]) == ("SUCCEEDED", 3)
    elements = [job for job in json.loads(run("list", "-a", "-o", "json").output) if job["array_job_id"] == array["id"]]
    assert [(job["array_index"], job["run"], job["retries"]) for job in elements] == [(2, 2, 1), (1, 2, 1), (0, 2, 1)]


def test_a_job_runs_where_the_submitters_path_means_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one from another machine, or from within a virtual environment that its node has too."""
    python = tmp_path / "bin" / "train"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexec env\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert run("submit", "--wait", "true").exit_code == 0
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/no/such/folder")
    done = run("submit", "--wait", "-o", "json", "train")
    assert done.exit_code == 0
    shown = [line.split(maxsplit=1) for line in run("show", str(json.loads(done.output)["id"])).output.splitlines()]
    assert ["program", str(python)] in shown
    assert run("submit", "--wait", "--export", "NONE", "train").exit_code != 0


def test_a_time_limit_ends_a_job(run: Run) -> None:
    late = run("submit", "--wait", "--time-limit", "1s", "sleep", "600")
    assert late.exit_code == 143
    job_id = late.stdout.split()[-1]
    assert late.stderr == f"ebb: job {job_id} TIMED_OUT (time limit)\n"
    assert "TIMED_OUT" in run("show", job_id).output
    assert run("list", "-q", "-s", "TO", "--limit", "1").output == f"{job_id}\n"


def test_a_trial_is_foreseen_and_explained(run: Run, client: Client) -> None:
    stubborn = ["sh", "-c", "trap '' TERM; sleep 600 & wait; wait"]
    victim = int(run("submit", "-q", "-c", "20", "--grace", "5s", "--", *stubborn).output)
    stands(client, victim, JobState.RUNNING)
    foreseen = run("submit", "--dry-run", "--trial", "-c", "20", "true").output.splitlines()
    assert foreseen[0] == "it would have these runs leave, and start when they are gone:"
    assert foreseen[1].split() == ["JOB", "USER", "NODE", "HOLDS", "GRACE", "SCORE"]
    assert foreseen[2].split()[::2] == [str(victim), "node-1", "cpus,", "5s"]
    assert client.get(victim).state is JobState.RUNNING
    trial = run("submit", "-q", "--trial", "-c", "20", "true").output.strip()
    behind = run("submit", "-q", "-c", "1", "true").output.strip()
    why = run("explain", trial).output
    assert why.startswith(f"job {trial} is QUEUED: waiting for victims\n")
    assert "waiting for victims: 1 run is leaving for it" in why
    assert "it may start at " in why
    assert f"job {behind} is QUEUED: " in run("explain", behind).output
    client.cancel(int(trial))
    assert f"last preempted at {'20'}" in run("explain", str(victim)).output
    assert f"trial {trial} of " in run("explain", str(victim)).output


def test_a_gang_is_placed_together(run: Run, client: Client) -> None:
    assert run("submit", "--dry-run", "--tasks", "3", "-c", "2", "true").output.count("node-1") == 3
    job_id = int(run("submit", "-q", "--task", "1:cpus=4", "--task", "2:cpus=1", "sleep", "600").output)
    until(lambda: client.get(job_id).state is not JobState.QUEUED, LIMIT)
    assert run("show", str(job_id)).output.splitlines()[-3:] == [
        "0     node-1  -        4 cpus, 1GiB",
        "1     node-1  -        1 cpu, 1GiB",
        "2     node-1  -        1 cpu, 1GiB",
    ]


def test_a_drained_node_takes_nothing(run: Run, client: Client) -> None:
    assert run("node", "drain", "node-1", "-r", "new kernel").output.startswith("node node-1 is DRAINED: new kernel, by ")
    job_id = run("submit", "-q", "true").output.strip()
    assert "of 1 node 0 can be used, and 1 would fit it when empty" in run("explain", job_id).output
    assert run("node", "undrain", "node-1").output == "node node-1 is UP\n"
    assert run("wait", job_id).exit_code == 0


def test_what_kept_a_job_from_running_is_said(run: Run) -> None:
    tried = run("submit", "--wait", "--cwd", "/nowhere", "true")
    why = "launch failed: working directory /nowhere: No such file or directory (on node node-1)"
    job_id = tried.stdout.split()[-1]
    assert (tried.exit_code, tried.stderr) == (1, f"ebb: job {job_id} FAILED ({why})\n")
    assert run("wait", job_id).stdout == f"job {job_id} FAILED ({why})\n"
    logs = run("logs", job_id)
    assert (logs.exit_code, logs.stdout) == (0, "")
    assert logs.stderr == f"ebb: job {job_id} FAILED ({why}): nothing could be written\n"
    array = run("submit", "-q", "--array", "2", "--wait", "true").stdout.strip()
    assert "its elements are jobs of their own, and have the output" in run("logs", array).stderr


def test_a_dead_node_is_fenced_and_deleted_and_joins_again(run: Run, client: Client, cluster: Cluster) -> None:
    job_id = int(run("submit", "-q", "sleep", "600").output)
    stands(client, job_id, JobState.RUNNING)
    cluster.kill("node-1", signal.SIGSTOP)
    try:
        stands(client, job_id, JobState.UNREACHABLE)
        assert run("node", "list", "--no-header").output.split()[:2] == ["node-1", "SILENT"]
        assert run("list", "-q", "-s", "NF").output == f"{job_id}\n"
        assert run("node", "fence", "--yes", "node-1").output.startswith("node node-1 is SILENT; what was there")
        job = client.get(job_id)
        assert (job.state, job.reason) == (JobState.QUEUED, JobReason.NODE_LOST)
        assert run("node", "delete", "node-1").output == "deleted node node-1\n"
        assert run("node", "list", "-q").output == ""
        assert "the cluster has no node yet" in run("explain", str(job_id)).output
    finally:
        cluster.kill("node-1", signal.SIGCONT)
    stands(client, job_id, JobState.RUNNING, 2)
