"""The agent as a whole, against a scheduler that obeys the test."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from node_agent.processes.process_groups import group_members, kill_group
from node_agent.run_state.model import LaunchSpec, RunKey, RunPhase, RunRecord
from node_agent.runs.spool_opening import open_spool
from tests.agent.conftest import AgentProcess, alive, block_runs, lose_spool, of_state, run_directory, until
from tests.agent.fake_scheduler import LIMIT, FakeScheduler
from tests.agent.fake_scheduler import gang as fake_gang

Start = Callable[..., AgentProcess]

# Says when it is ready, so that a signal that follows meets the trap.
OBEYS = "trap 'touch $EBB_YIELD_FILE; exit 0' TERM; touch ready; while :; do sleep 0.02; done"
DEFIES = "trap '' TERM; touch ready; while :; do sleep 0.02; done"


def ready(state: Path, job: int, run: int = 1) -> None:
    until((run_directory(state, job, run) / "ready").exists)


def numbers(scheduler: FakeScheduler) -> list[int]:
    return [report.sequence for report in scheduler.reports]


def test_start_and_exit(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    hello = scheduler.connected()
    assert (hello.node, hello.cluster_id, hello.epoch) == ("n1", "", 0)
    assert (hello.capacity.cpu_milli, hello.capacity.memory_mib, hello.capacity.devices) == (128_000, 1 << 20, 8)
    assert list(hello.levels) == ["socket", "switch"]
    assert [tuple(d.path) for d in hello.devices] == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]
    said = {"name": "my job", "environment": {"A": "b c"}, "grace_period": Duration(seconds=90)}
    scheduler.start(1, "/bin/sh", "-c", "env; pwd; exit 3", devices=(0, 1), **said)
    started = scheduler.started(1)
    assert scheduler.exited(1).exit_code == 3
    log = Path(started.log_path)
    assert log == run_directory(state, 1) / "output.log"
    assert log.parent.parent.name == hello.boot_id.rpartition("/")[2][:12]
    text = log.read_text()
    for line in (
        "EBB_JOB_ID=1",
        "EBB_RUN=1",
        "EBB_NODE=n1",
        "EBB_DEVICES=0,1",
        f"EBB_DEVICE_MODEL={hello.devices[0].model}",
        f"EBB_DEVICE_MEMORY_MIB={hello.devices[0].memory_mib}",
        "EBB_CONFIGURATION=0",
        "EBB_GRACE_SECONDS=90",
        f"EBB_DEVICE_UUIDS={hello.devices[0].uuid},{hello.devices[1].uuid}",
        "EBB_JOB_NAME=my job",
        f"EBB_RUN_DIR={log.parent}",
        f"EBB_CHECKPOINT_DIR={state}/checkpoints/c1/job-1",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES=",
        "A=b c",
        str(log.parent),
    ):
        assert line in text.splitlines()
    assert (state / "checkpoints/c1/job-1").is_dir()
    scheduler.wait(lambda: scheduler.heartbeats >= 2)
    assert numbers(scheduler) == [1, 2]


def test_an_active_virtual_environment_is_the_jobs_too(agent: Start, scheduler: FakeScheduler, tmp_path: Path) -> None:
    """Its python is the one that runs, and is named. What is in none of the submitter's folders is found in the agent's."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$0 $VIRTUAL_ENV $A $CUDA_VISIBLE_DEVICES."; exec env\n')
    python.chmod(0o755)
    agent()
    scheduler.connected()
    inherited = {"PATH": f"{venv}/bin:/elsewhere", "VIRTUAL_ENV": str(venv), "A": "theirs", "CUDA_VISIBLE_DEVICES": "7"}
    scheduler.start(1, "python", inherited_environment=inherited, environment={"A": "mine"}, devices=(0,))
    started = scheduler.started(1)
    assert scheduler.exited(1).exit_code == 0, "env was found, which is in none of the submitter's folders"
    assert started.program == str(python)
    said, *variables = Path(started.log_path).read_text().splitlines()
    assert said == f"{python} {venv} mine .", "the user's own word wins, and the agent's over all"
    (path,) = (each.removeprefix("PATH=") for each in variables if each.startswith("PATH="))
    assert path.split(":")[:2] == [f"{venv}/bin", "/elsewhere"]
    assert len(set(path.split(":"))) == len(path.split(":")) > 2
    scheduler.start(2, "sh", "-c", "echo $PATH", inherited_environment=inherited, environment={"PATH": "/usr/bin:/bin"})
    scheduler.exited(2)
    assert Path(scheduler.started(2).log_path).read_text() == "/usr/bin:/bin\n", "what is set is set"


PRINTS = 'import time; print("step 1"); time.sleep(600)'


def test_what_a_python_program_prints_is_in_its_log_while_it_runs(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, sys.executable, "-c", PRINTS)
    until(lambda: Path(scheduler.started(1).log_path).read_text() == "step 1\n")
    assert not scheduler.of(1)[1:], "it runs"


def test_the_program_that_ran_is_named_by_where_it_was_found(agent: Start, scheduler: FakeScheduler, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)
    agent()
    scheduler.connected()
    scheduler.start(1, "./train.sh", working_directory=str(tmp_path))
    assert scheduler.started(1).program == str(tmp_path / "train.sh")
    scheduler.start(2, "train.sh", working_directory=str(tmp_path), environment={"PATH": ""})
    assert scheduler.started(2).program == str(tmp_path / "train.sh")


def test_a_start_that_is_repeated_runs_once(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    for _ in range(3):
        scheduler.start(1, "/bin/sh", "-c", "echo once")
    scheduler.exited(1)
    scheduler.start(1, "/bin/sh", "-c", "echo once")
    scheduler.start(2, "true")
    scheduler.exited(2)
    assert (run_directory(state, 1) / "output.log").read_text() == "once\n"
    assert len(scheduler.of(1)) == 2


def test_launch_errors(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    at_fault: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        ("no-such-program", {}, ("no-such-program", "No such file", "n1")),
        ("/etc/passwd", {}, ("/etc/passwd", "Permission denied")),
        ("true", {"working_directory": "/no/such/place"}, ("working directory", "/no/such/place")),
        ("true", {"devices": (8,)}, ("no device 8",)),
    ]
    for job, (command, spec, words) in enumerate(at_fault, 1):
        scheduler.start(job, command, **spec)
        exited = scheduler.exited(job)
        for word in words:
            assert word in exited.launch_error
        assert exited.job_fault == ("devices" not in spec), "a device that is missing is the node's own fault"
        assert len(scheduler.of(job)) == 1


def test_stop_obeyed(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", OBEYS)
    ready(state, 1)
    scheduler.stop(1, 30)
    exited = scheduler.exited(1)
    assert (exited.exit_code, exited.exit_signal, exited.yielded) == (0, 0, True)


def test_killed_at_the_deadline_that_a_resend_does_not_move(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", DEFIES)
    ready(state, 1)
    begin = time.monotonic()
    while not any(report.HasField("exited") for report in scheduler.of(1)):
        assert time.monotonic() < begin + LIMIT, "it is given more time with every order"
        scheduler.stop(1, 1.0)
        time.sleep(0.1)
    exited = scheduler.exited(1)
    assert (exited.exit_signal, exited.yielded) == (signal.SIGKILL, False)
    assert time.monotonic() - begin > 0.99


def test_what_is_old_changes_nothing_also_for_the_next_agent(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, "sleep", "1000")
    pid = scheduler.started(1).pid
    first.kill()
    agent()
    (known,) = scheduler.connected(2).runs
    assert (known.job_id, known.generation) == (1, 1)
    stop = pb.Stop(reason=pb.STOP_REASON_UNCLAIMED)
    scheduler.say(pb.DesiredRun(job_id=1, run=1, generation=1, stopped=stop))
    scheduler.start(2, "true")
    scheduler.exited(2)
    assert alive(pid)
    scheduler.say(pb.DesiredRun(job_id=1, run=1, generation=2, stopped=stop))
    assert scheduler.exited(1).exit_signal == signal.SIGKILL


def test_grace_zero_kills_at_once(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", DEFIES)
    ready(state, 1)
    scheduler.stop(1, 0)
    assert scheduler.exited(1, limit=2).exit_signal == signal.SIGKILL


def test_stop_before_start_refuses_the_start(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.stop(1, 5)
    exited = scheduler.exited(1)
    assert (exited.exit_signal, exited.yielded) == (signal.SIGTERM, False)
    scheduler.start(1, "true")
    scheduler.start(2, "true")
    scheduler.exited(2)
    assert len(scheduler.of(1)) == 1


def test_what_a_run_leaves_behind_is_killed(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "sleep 1000 & (sleep 1000 & sleep 1000) & exit 4")
    pid = scheduler.started(1).pid
    assert scheduler.exited(1).exit_code == 4
    assert not group_members(pid)


def test_reports_are_sent_again_until_acknowledged(agent: Start, scheduler: FakeScheduler) -> None:
    scheduler.acknowledging = False
    agent()
    scheduler.connected()
    scheduler.start(1, "true")
    scheduler.exited(1)
    scheduler.acknowledging = True
    scheduler.hang_up()
    assert {(r.job_id, r.phase) for r in scheduler.connected(2).runs} == {(1, 4)}, "its reports are not acknowledged"
    scheduler.wait(lambda: numbers(scheduler) == [1, 2, 1, 2])
    scheduler.wait(lambda: scheduler.committed == 2)
    scheduler.start(2, "true")
    scheduler.exited(2)
    scheduler.hang_up()
    hello = scheduler.connected(3)
    assert not hello.runs, "the scheduler knows that both are over"
    assert (hello.epoch, hello.seal) == (1, b"epoch 1")
    scheduler.start(3, "true")
    scheduler.exited(3)
    assert numbers(scheduler) == [1, 2, 1, 2, 3, 4, 5, 6]


def test_another_configuration_holds_without_another_connection(agent: Start, scheduler: FakeScheduler) -> None:
    scheduler.heartbeat = 3600
    agent()
    scheduler.connected()
    scheduler.configure(heartbeat=0.01)
    scheduler.wait(lambda: scheduler.heartbeats + len(scheduler.observations) >= 3)
    assert len(scheduler.hellos) == 1


def test_jobs_outlive_a_killed_agent(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 5")
    scheduler.start(2, "/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 6")
    pids = [scheduler.started(job).pid for job in (1, 2)]
    first.kill()
    assert all(map(alive, pids))
    (run_directory(state, 1) / "go").touch()  # this one ends while nobody is there
    until((run_directory(state, 1) / "exit.json").exists)
    agent()
    hello = scheduler.connected(2)
    assert hello.cluster_id == "c1"
    assert hello.boot_id == scheduler.hellos[0].boot_id
    assert scheduler.exited(1).exit_code == 5
    assert alive(pids[1])
    (run_directory(state, 2) / "go").touch()
    assert scheduler.exited(2).exit_code == 6
    assert numbers(scheduler) == [1, 2, 3, 4]


def test_a_grace_period_outlives_a_killed_agent(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", DEFIES)
    ready(state, 1)
    begin = time.monotonic()
    scheduler.stop(1, 6.0)
    until(lambda: "terminating" in first.log.read_text())
    first.kill()
    agent()
    hello = scheduler.connected(2)
    assert [run.phase for run in hello.runs] == [3]
    again = time.monotonic()
    scheduler.stop(1, 6.0)
    assert scheduler.exited(1).exit_signal == signal.SIGKILL
    killed = time.monotonic()
    assert killed - begin >= 6.0, "before its grace period was over"
    assert killed - again < 6.0, "the grace period began anew with the order that was sent again"


def test_an_agent_that_died_before_it_acted_acts_now(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    state.mkdir()
    spool = open_spool(state / "spool.db")
    script = ("/bin/sh", "-c", "echo once")
    launched, stopped = RunKey(1, 1), RunKey(2, 1)
    spool.remember(
        [
            RunRecord(launched, RunPhase.STARTING, LaunchSpec(launched, script), log_path="l"),
            RunRecord(stopped, RunPhase.STOPPING, LaunchSpec(stopped, script), stop_received=0.0, stop_deadline=1.0),
        ]
    )
    spool.close()
    agent()
    assert scheduler.exited(1).exit_code == 0
    assert scheduler.exited(2).exit_signal == signal.SIGTERM
    assert (run_directory(state, 1) / "output.log").read_text() == "once\n"
    assert not list(state.glob("runs/*/2.1"))
    assert [r.WhichOneof("event") for r in scheduler.of(1)] == ["started", "exited"]


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ('{"began_from": "c-step-10", "saved": "c-step-20"}', ("c-step-10", "c-step-20")),
        ('{"saved": "c-step-20", "began_from": 3}', ("", "c-step-20")),
        ('{"began_from": "' + "x" * 300 + '"}', ("x" * 252 + "\u2026", "")),
        ("not json", ("", "")),
        ("[]", ("", "")),
        ("[" * 4096, ("", "")),
    ],
)
def test_the_end_of_a_run_names_its_checkpoints(
    agent: Start, scheduler: FakeScheduler, state: Path, said: str, names: tuple[str, str]
) -> None:
    """What is no name is left out: the program writes the file."""
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", 'printf %s "$1" > "$EBB_CHECKPOINT_FILE"; exit 3', "sh", said)
    exited = scheduler.exited(1)
    assert (exited.exit_code, exited.began_from, exited.saved) == (3, *names)
    assert Path(run_directory(state, 1), "checkpoint.json").exists()


def test_a_run_names_its_checkpoints_while_it_executes(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    command = 'echo "{\\"saved\\": \\"c-1\\"}" > "$EBB_CHECKPOINT_FILE"; until [ -e go ]; do sleep 0.02; done'
    scheduler.start(1, "/bin/sh", "-c", command)
    named = scheduler.wait(lambda: next((one for seen in scheduler.observations for one in seen.checkpoints), None))
    assert (named.job_id, named.run, named.task, named.began_from, named.saved) == (1, 1, 0, "", "c-1")
    (run_directory(state, 1) / "go").touch()
    assert scheduler.exited(1).saved == "c-1"
    before = len(scheduler.observations)
    scheduler.wait(lambda: scheduler.heartbeats > 1 or len(scheduler.observations) > before)
    assert not any(seen.checkpoints for seen in scheduler.observations[before + 1 :]), "it is over"


def test_a_run_whose_checkpoint_file_is_none_ends_as_it_ends(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    for job, make in enumerate(("mkfifo $EBB_CHECKPOINT_FILE", "ln -s /etc/passwd $EBB_CHECKPOINT_FILE", "true"), 1):
        scheduler.start(job, "/bin/sh", "-c", f"{make}; exit 3")
        exited = scheduler.exited(job)
        assert (exited.exit_code, exited.began_from, exited.saved) == (3, "", "")


def test_a_killed_launcher_costs_the_exit_status_only(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "sleep 1000 & until [ -e go ]; do sleep 0.02; done")
    pid = scheduler.started(1).pid
    launcher = [p for p in of_state(state) if group_members(p) == [p] and p != pid]
    assert len(launcher) == 1
    os.kill(launcher[0], signal.SIGKILL)
    scheduler.start(2, "true")
    assert scheduler.exited(2).exit_code == 0
    assert alive(pid)
    (run_directory(state, 1) / "go").touch()
    assert scheduler.exited(1).unknown
    assert not group_members(pid)
    assert len(scheduler.of(1)) == 2


def test_a_launcher_that_the_agent_lost_sight_of_still_says_how_runs_end(
    agent: Start, scheduler: FakeScheduler, state: Path
) -> None:
    """The agent sees that the run is over before its launcher has noted how."""
    first = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 3")
    pid = scheduler.started(1).pid
    (launcher,) = (p for p in of_state(state) if group_members(p) == [p] and p != pid)
    first.kill()
    (state / "launcher.sock").unlink()
    second = agent()
    scheduler.connected(2)
    os.kill(launcher, signal.SIGSTOP)
    (run_directory(state, 1) / "go").touch()
    until(lambda: "run 1.1: is over, and nobody has said how" in second.log.read_text())
    os.kill(second.process.pid, signal.SIGSTOP)  # so that it looks again when there is something to be seen
    os.kill(launcher, signal.SIGCONT)
    until((run_directory(state, 1) / "exit.json").exists)
    os.kill(second.process.pid, signal.SIGCONT)
    assert scheduler.exited(1).exit_code == 3
    assert len(scheduler.of(1)) == 2


def test_an_older_scheduler_is_refused(agent: Start, scheduler: FakeScheduler) -> None:
    scheduler.epoch = 7
    one = agent()
    scheduler.connected()
    scheduler.start(1, "sleep", "1000")
    scheduler.started(1)
    scheduler.epoch = 6
    scheduler.hang_up()
    scheduler.connected(3)
    assert scheduler.hellos[-1].epoch == 7
    until(lambda: "has been replaced" in one.log.read_text())
    scheduler.epoch = 8
    seen = len(scheduler.hellos)
    scheduler.connected(seen + 1)
    scheduler.start(2, "true")
    scheduler.exited(2)
    scheduler.hang_up()
    count = len(scheduler.hellos)
    assert scheduler.connected(count + 1).epoch == 8


def test_another_cluster_is_refused_until_told_to_forget(agent: Start, scheduler: FakeScheduler) -> None:
    one = agent()
    scheduler.connected()
    until(lambda: "connected to" in one.log.read_text())
    scheduler.cluster_id = "c2"
    scheduler.hang_up()
    until(lambda: "belongs to cluster c2" in one.log.read_text())
    assert one.terminate() == 0
    seen = len(scheduler.hellos)
    agent("--forget-cluster")
    assert scheduler.connected(seen + 1).cluster_id == ""
    scheduler.start(1, "true")
    scheduler.exited(1)


@pytest.mark.parametrize("launcher_too", [False, True])
def test_runs_of_a_lost_spool_are_gone_before_the_scheduler_hears(
    agent: Start, scheduler: FakeScheduler, state: Path, launcher_too: bool
) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, "env", "-i", "/bin/sleep", "1000")  # has lost its environment: known by the file alone
    scheduler.start(2, "/bin/sh", "-c", f"sleep 1000 & {DEFIES}")
    pids = [scheduler.started(job).pid for job in (1, 2)]
    ready(state, 2)
    launcher = next(p for p in of_state(state) if group_members(p) == [p] and p not in pids)
    first.kill()
    if launcher_too:
        os.kill(launcher, signal.SIGKILL)
        (run_directory(state, 2) / "process.json").unlink()  # known by its environment alone
    lose_spool(state)
    scheduler.on_hello = lambda: found.extend(p for pid in pids for p in group_members(pid))
    found: list[int] = []
    try:
        agent()
        hello = scheduler.connected(2)
        assert found == []
        assert list(hello.runs) == []
        assert hello.boot_id != scheduler.hellos[0].boot_id
        assert hello.cluster_id == "c1"
        scheduler.reports.clear()
        scheduler.start(2, "/bin/sh", "-c", "echo $EBB_RUN", run=2)
        assert scheduler.exited(2, run=2).exit_code == 0
        assert numbers(scheduler) == [1, 2]
    finally:
        for pid in pids:
            kill_group(pid)


def test_the_runs_of_a_spool_of_garbage_are_reported_and_over_before_the_agent_connects(
    agent: Start, scheduler: FakeScheduler, state: Path
) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, "sleep", "1000")
    pid = scheduler.started(1).pid
    spool = run_directory(state, 1).parent.name
    first.kill()
    for file in state.glob("spool.db*"):
        file.write_bytes(b"garbage" * 1000)
    second = agent()
    try:
        assert not scheduler.connected(2).runs
        assert not group_members(pid)
    finally:
        kill_group(pid)
    (said,) = [line for line in second.log.read_text().splitlines() if "cannot be used" in line]
    assert "WARNING" in said
    assert said.endswith(f"Runs found alive: {spool}/1.1")
    assert (state / "spool.db.damaged-1").read_bytes() == b"garbage" * 1000


def test_nothing_old_is_met_by_the_jobs_of_a_new_cluster(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    one = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "touch $EBB_CHECKPOINT_DIR/old; exit 3")
    assert scheduler.exited(1).exit_code == 3
    scheduler.wait(lambda: scheduler.committed == 2)
    one.kill()
    scheduler.begin_anew("c2")
    agent("--forget-cluster")
    hello = scheduler.connected()
    assert (hello.cluster_id, list(hello.runs)) == ("", [])
    scheduler.start(1, "/bin/sh", "-c", "ls $EBB_CHECKPOINT_DIR; exit 4")
    log = Path(scheduler.started(1).log_path)
    assert scheduler.exited(1).exit_code == 4
    assert numbers(scheduler) == [1, 2]
    assert log.read_text() == ""
    assert sorted(p.name for p in (state / "checkpoints").glob("[!.]*")) == ["c1", "c2"]
    assert len(list(state.glob("runs/*/1.1/exit.json"))) == 2


@pytest.mark.parametrize("gang", [None, fake_gang(go=("127.0.0.1", 7))])
def test_checkpoints_that_are_not_there_are_told_of(
    agent: Start, scheduler: FakeScheduler, state: Path, gang: "pb.Gang | None"
) -> None:
    """As where the shared directory is not mounted; the first run of a job has none yet."""
    one = agent()
    scheduler.connected()
    for run in (1, 2):
        scheduler.start(1, "/bin/sh", "-c", "touch $EBB_CHECKPOINT_DIR/saved", run=run, gang=gang)
        assert scheduler.exited(1, run).exit_code == 0
    assert "mounted?" not in one.log.read_text()
    shutil.rmtree(state / "checkpoints")
    scheduler.start(1, "/bin/sh", "-c", "ls $EBB_CHECKPOINT_DIR", run=3, gang=gang)
    log = Path(scheduler.started(1, run=3).log_path)
    assert scheduler.exited(1, run=3).exit_code == 0
    assert log.read_text() == ""
    said = f"run 1.3: job 1 ran before, and has no checkpoints here: {state}/checkpoints/c1/job-1 is not there. "
    assert f"{said}It starts from the beginning. Is {state}/checkpoints mounted?" in one.log.read_text()


def test_a_fault_of_the_node_is_not_the_jobs(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    one = agent()
    scheduler.connected()
    block_runs(state)
    for job in (1, 2):
        scheduler.start(job, "true")
    until(lambda: one.log.read_text().count("NODE FAULT") >= 2)
    scheduler.stop(2, 5)
    assert scheduler.exited(2).exit_signal == signal.SIGTERM
    scheduler.hang_up()
    assert {(r.job_id, r.phase) for r in scheduler.connected(2).runs} == {(1, 1)}
    (state / "runs").unlink()
    assert scheduler.exited(1).exit_code == 0
    assert len(scheduler.of(1)) == 2


def test_one_agent_for_a_state_directory(agent: Start, scheduler: FakeScheduler) -> None:
    one = agent()
    scheduler.connected()
    two = agent()
    assert two.process.wait(20) == 1
    assert f"in use by another agent (pid {one.process.pid})" in two.log.read_text()


def test_stopping_leaves_jobs_or_nothing(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    one = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "sleep 1000 & sleep 1000")
    pid = scheduler.started(1).pid
    assert one.terminate() == 0
    assert alive(pid)
    two = agent("--stop-jobs-on-exit")
    scheduler.connected(2)
    until(lambda: two.log.read_text().count("launcher connected") == 2)
    assert two.terminate() == 0
    assert not alive(pid)
    assert not of_state(state)
    agent()
    exited = scheduler.exited(1)
    assert (exited.exit_signal, exited.node_stopped) == (signal.SIGKILL, True)


def test_the_launcher_leaves_when_it_is_idle(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    one = agent()
    scheduler.connected()
    until(lambda: "launcher connected" in one.log.read_text())
    assert one.terminate() == 0
    until(lambda: not of_state(state))
