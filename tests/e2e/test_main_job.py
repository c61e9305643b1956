"""What Ebb is for, from end to end: real processes, a real database, and what a user sees of them."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from client_sdk import JobEventKind, JobReason, JobState
from tests.harness import LIMIT, WHOLE_NODE, Site, alive, catches, leftovers, run, run_module
from tests.store.waiting import wait_for


def test_a_trial_preempts_a_training_job_which_goes_on_where_it_was(site: Site) -> None:
    release = site.file("release-main")
    with site.room_for_one():
        victim = site.trainer("--steps", "20", "--hold", "asked", "--until", release, devices=WHOLE_NODE, grace=60)
        site.until(victim, JobState.RUNNING)
        site.evidence.wait(victim, "start")
        trial = site.short(job_class="trial", devices=4)
        behind = site.short(devices=4)  # in the queue before the victim comes back to it
        asked = site.evidence.wait(victim, "asked")
        assert site.client.get(victim.id).state is JobState.STOPPING
        waiting = site.client.get(trial.id)
        assert (waiting.state, waiting.reason) == (JobState.QUEUED, JobReason.WAITING_FOR_VICTIMS)
        release.touch()
        site.succeeded(trial, victim, behind)
    lines = site.evidence.lines(victim)
    assert [(line["event"], line["run"], line["step"]) for line in lines] == [
        ("start", 1, 0),
        ("asked", 1, asked["step"]),
        ("start", 2, asked["step"]),
        ("end", 2, asked["step"] + 20),
    ]
    kinds = [event.kind for event in site.client.story(victim.id)]
    launched = [JobEventKind.PLACED, JobEventKind.STARTED]
    left = [JobEventKind.PREEMPTED, JobEventKind.VACATED, JobEventKind.REQUEUED]
    assert kinds == [JobEventKind.SUBMITTED, *launched, *left, *launched, JobEventKind.ENDED]
    (decision,) = [event.decision for event in site.client.story(trial.id) if event.decision is not None]
    assert [(c.job_id, c.chosen, c.sufficient) for c in decision.candidates] == [(victim.id, True, True)]
    order = [line["job"] for line in site.evidence.lines(event="start") if line["job"] in (trial.id, victim.id, behind.id)]
    assert order == [victim.id, trial.id, victim.id, behind.id], "the victim stands before those that have not run"
    assert site.client.get(victim.id).preempted_for_trial == 1


def test_cancel(site: Site) -> None:
    release = site.file("release-cancel")
    running = [site.held(release, devices=WHOLE_NODE, grace=30) for _ in site.nodes]
    for job in running:
        site.until(job, JobState.RUNNING)
    queued = site.short(devices=WHOLE_NODE)
    assert site.client.cancel(queued.id).state is JobState.CANCELLED
    site.client.cancel(running[0].id)
    ended = site.client.wait(running[0], LIMIT)
    assert (ended.state, ended.reason, ended.exit_signal) == (JobState.CANCELLED, JobReason.CANCELLED, signal.SIGTERM)
    assert site.client.cancel(running[0].id).state is JobState.CANCELLED  # safe to repeat, also now
    release.touch()
    site.succeeded(running[1])
    assert site.client.cancel(running[1].id).state is JobState.SUCCEEDED
    assert site.evidence.lines(queued) == []


def test_a_job_that_ignores_its_signal_is_killed_at_the_end_of_its_grace(site: Site) -> None:
    command = ["sh", "-c", "trap '' TERM; echo ready > \"$EBB_RUN_DIR/ready\"; while :; do sleep 0.1; done"]
    job = site.until(site.submit(command, grace=0.3), JobState.RUNNING)
    wait_for((site.wait_run_directory(job) / "ready").exists, LIMIT)
    site.client.cancel(job.id)
    ended = site.client.wait(job, LIMIT)
    assert (ended.state, ended.exit_signal) == (JobState.CANCELLED, signal.SIGKILL)


def test_failures(site: Site) -> None:
    launch = site.client.wait(site.submit(["/no/such/program"]), LIMIT)
    assert (launch.state, launch.reason) == (JobState.FAILED, JobReason.LAUNCH_FAILED)
    assert "/no/such/program" in launch.reason_detail
    directory = site.client.wait(site.submit(["true"], working_directory="/no/such/directory"), LIMIT)
    assert "/no/such/directory" in directory.reason_detail
    code = site.client.wait(site.submit(["sh", "-c", "exit 3"]), LIMIT)
    assert (code.state, code.reason, code.exit_code) == (JobState.FAILED, JobReason.EXITED, 3)
    by_signal = site.client.wait(site.submit(["sh", "-c", "kill -9 $$"]), LIMIT)
    assert (by_signal.state, by_signal.reason, by_signal.exit_signal) == (JobState.FAILED, JobReason.SIGNALLED, 9)


def test_an_agent_that_is_stopped_in_order_leaves_its_jobs_when_it_is_told_to(site: Site) -> None:
    """Without --stop-jobs-on-exit: a SIGTERM ends the agent alone."""
    release = site.file("release-stopped")
    job = site.until(site.held(release, devices=1), JobState.RUNNING)
    pid = site.evidence.wait(job, "start")["pid"]
    node = job.node or ""
    before = [site.node(node)]
    site.cluster.kill(node)  # this one would stop its jobs; the next one would not
    arguments = [
        "--scheduler",
        site.cluster.address,
        "--devices",
        "dgx-a100",
        "--node",
        node,
        "--state",
        str(site.folder / node),
        *(["--allow-root"] if os.geteuid() == 0 else []),
    ]
    agent = subprocess.Popen([sys.executable, "-m", "node_agent", "run", *arguments], stderr=subprocess.DEVNULL)
    try:
        site.wait_connected(since=before)
    finally:
        agent.terminate()
        assert agent.wait(LIMIT) == 0
    assert alive(pid)
    before = [site.node(node)]
    site.cluster.restart_agent(node)
    site.wait_connected(since=before)
    release.touch()
    site.succeeded(job)
    assert len(site.evidence.lines(job, "start")) == 1


def test_everything_comes_back_after_restarts(site: Site) -> None:
    release = site.file("release-restarts")
    running = [site.until(site.held(release, devices=WHOLE_NODE), JobState.RUNNING) for _ in site.nodes]
    queued = site.short(devices=1)
    before = comparable(site)
    for number in (signal.SIGTERM, signal.SIGKILL):
        since = site.client.nodes()
        site.cluster.kill("scheduler", number)
        site.cluster.processes["scheduler"].wait(LIMIT)
        site.restart_scheduler()
        assert comparable(site) == before
        site.wait_connected(since=since)
        assert comparable(site) == before
        assert [site.client.get(job.id).state for job in running] == [JobState.RUNNING] * 2
        waiting = site.client.get(queued.id)
        assert (waiting.state, waiting.run) == (JobState.QUEUED, 0)
    release.touch()
    site.succeeded(*running, queued)


def comparable(site: Site) -> list[object]:
    """Nodes as they are listed, but for whence their agents connected."""
    return [(n.name, n.state, n.capacity, n.free, n.earmarked, n.levels, n.devices) for n in site.client.nodes()]


@pytest.mark.long
def test_fifo_preempts_nobody(folder: Path) -> None:
    with Site(folder / "fifo", ["--policy", "fifo"], nodes=["n1"]) as site:
        release = site.file("release")
        first = site.until(site.held(release, devices=WHOLE_NODE), JobState.RUNNING)
        trial = site.short(job_class="trial", devices=WHOLE_NODE)
        small = site.short(devices=1)
        site.until(trial, JobState.QUEUED)
        assert site.client.get(first.id).state is JobState.RUNNING
        assert (site.client.get(small.id).reason, site.client.get(small.id).cause_job_id) == (JobReason.BEHIND, trial.id)
        release.touch()
        site.succeeded(first, trial, small)
        assert [line["job"] for line in site.evidence.lines(event="start")] == [first.id, trial.id, small.id]
        every = {event.kind for job in (first, trial, small) for event in site.client.story(job.id)}
        assert JobEventKind.PREEMPTED not in every
        site.check_all_ended()
    assert not leftovers(folder)


def test_the_command_line_as_a_user_uses_it(site: Site) -> None:
    def ebb(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return run([Path(sys.executable).with_name("ebb"), *arguments], EBB_ADDRESS=site.cluster.address)

    nodes = ebb("node", "list", "--no-header")
    assert sorted(line.split()[:2] for line in nodes.stdout.splitlines()) == [["n1", "UP"], ["n2", "UP"]]
    submitted = ebb("submit", "--name", "hello", "-m", "64MiB", "-q", "--", "sh", "-c", "echo hello; exit 4")
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    assert ebb("wait", job).returncode == 4
    assert ebb("logs", job).stdout == "hello\n"
    assert "exit 4" in ebb("list", "--all", "--limit", "1").stdout
    shown = json.loads(ebb("show", job, "-o", "json").stdout)
    assert (shown["state"], shown["exit_code"], shown["spec"]["name"]) == ("FAILED", 4, "hello")
    assert "started on n" in ebb("story", job).stdout
    sleeper = ebb("submit", "-q", "--grace", "5s", "--", "sleep", "100").stdout.strip()
    assert ebb("cancel", sleeper).returncode == 0
    assert ebb("wait", sleeper).returncode == 128 + signal.SIGTERM
    missing = ebb("show", "999999")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "there is no job 999999" in missing.stderr
    too_large = ebb("submit", "-g", "9", "--", "true")
    assert too_large.returncode == 1
    assert "no node of this cluster has 9 devices" in too_large.stderr


def test_a_client_without_our_files(site: Site) -> None:
    """Health and reflection answer, and what reflection tells is enough to make a call."""
    with grpc.insecure_channel(site.cluster.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "ebb.v1.Scheduler", "ebb.v1.Cluster"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=LIMIT)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        described = ProtoReflectionDescriptorDatabase(channel)
        assert {"ebb.v1.Scheduler", "ebb.v1.Cluster", "ebb.agent.v1.AgentLink"} <= set(described.get_services())
        for symbol in ("ebb.v1.Scheduler", "ebb.v1.Scheduler.Submit", "ebb.v1.SubmitRequest", "ebb.v1.SubmitRequest.spec"):
            asked_anew = ProtoReflectionDescriptorDatabase(channel)
            assert asked_anew.FindFileContainingSymbol(symbol).name == "ebb/v1/scheduler.proto"
        for nothing in ("ebb.v1.Scheduler.Nothing", "ebb.v1.Nothing.Submit"):
            with pytest.raises(KeyError):
                ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol(nothing)
        method = DescriptorPool(described).FindServiceByName("ebb.v1.Cluster").FindMethodByName("ListNodes")
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        call = channel.unary_unary(
            "/ebb.v1.Cluster/ListNodes", request_serializer=request.SerializeToString, response_deserializer=response.FromString
        )
        assert sorted(node.name for node in call(request(), timeout=LIMIT).nodes) == ["n1", "n2"]


def test_a_second_scheduler_is_refused(site: Site) -> None:
    folder = str(site.folder / "db")
    same_folder = run_module("scheduler_service", "serve", "--embedded", folder, "--listen", "127.0.0.1:0")
    assert same_folder.returncode == 1
    assert f"{site.cluster.processes['scheduler'].pid}" in same_folder.stderr
    assert "Traceback" not in same_folder.stderr
    other = ["--database", site.database.url, "--listen", site.cluster.address]
    same_port = run_module("scheduler_service", "serve", *other)
    assert same_port.returncode == 1
    assert site.cluster.address.rpartition(":")[2] in same_port.stderr
    assert "Traceback" not in same_port.stderr
    site.succeeded(site.short())


def test_a_stop_in_the_middle_of_a_first_start_leaves_nothing(folder: Path) -> None:
    site = Site(folder / "site", nodes=["n1"])
    flags = ["--embedded", str(site.folder / "db"), "--listen", "127.0.0.1:0", "--address-file", str(site.folder / "address")]
    try:
        for sign in ("db/postgres/data.new-*", "db/postgres/data/postmaster.pid"):
            site.cluster._spawn("scheduler", ["scheduler_service", "serve", *flags])
            wait_for(lambda sign=sign: any(site.folder.glob(sign)), LIMIT)
            site.cluster.processes["scheduler"].terminate()
            assert site.cluster.processes["scheduler"].wait(LIMIT) == 0, site.cluster.tail("scheduler")
            assert not leftovers(site.folder)
            assert not (site.folder / "address").exists()
    finally:
        site.close()


def test_a_stop_leaves_nothing(folder: Path) -> None:
    with Site(folder / "site", nodes=["n1"]) as site:
        cluster = site.cluster
        job = site.until(site.held(site.file("never"), grace=30), JobState.RUNNING)
        pid = site.evidence.wait(job, "start")["pid"]
        cluster.kill("n1")
        with site.launchers_stopped():
            cluster.restart_agent("n1")
            wait_for(lambda: catches(cluster.processes["n1"].pid, signal.SIGTERM), LIMIT)
            cluster.kill("n1", signal.SIGTERM)  # while it waits for what the launcher has to say
        assert cluster.processes["n1"].wait(LIMIT) == 0
        assert not alive(pid)
        assert not leftovers(site.folder / "n1")
    assert not leftovers(site.folder)
    assert not (site.folder / "address").exists()
    host, port = cluster.address.split(":")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, int(port)))


def test_the_programs_answer_help_and_check_their_settings(folder: Path) -> None:
    checked = run_module("scheduler_service", "serve", "--embedded", str(folder / "db"), "--policy", "fifo", "--check-config")
    assert checked.returncode == 0
    assert "policy: fifo" in checked.stdout
    assert not (folder / "db").exists()
    wrong = run_module("scheduler_service", "serve", "--listen", "0.0.0.0:1")
    assert wrong.returncode == 2
    assert "not a loopback address" in wrong.stderr
