"""The command line: what it prints, and with which status it leaves."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf import json_format

from client_sdk import Client
from client_sdk._protobuf import convert
from client_sdk._transport import wire
from client_sdk.cli import ebb, nodes
from client_sdk.cli.output import common as output
from client_sdk.models import Explanation
from tests.sdk.fake import Fake, until

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]


@pytest.fixture
def run(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(
        output, "ran_for", lambda job, _now, real=output.ran_for: real(job, datetime(2026, 1, 2, 4, tzinfo=UTC))
    )
    yield lambda *arguments: CliRunner().invoke(ebb, arguments, prog_name="ebb")
    monkeypatch.delenv("TZ")
    time.tzset()


def job(job_id: int, **fields: Any) -> job_pb2.Job:
    spec = {
        "name": f"job-{job_id}",
        "command": ["python", "train.py", "a b"],
        "resources": {"cpuMilli": "1500", "memoryMib": "4096"},
    }
    spec |= fields.pop("spec", {})
    base = {"id": str(job_id), "user": "ada", "submitTime": "2026-01-02T03:04:05Z", "spec": spec}
    return json_format.ParseDict(base | fields, job_pb2.Job())


@pytest.fixture
def jobs(fake: Fake) -> Fake:
    placed = {"run": 1, "node": "n1", "startTime": "2026-01-02T03:05:00Z"}
    fake.put(job(1, state=6, reason=10, endTime="2026-01-02T03:06:07Z", executedTime="67s", **placed))
    executes = placed | {"executedTime": "60s", "executingSince": "2026-01-02T03:06:00Z"}
    fake.put(
        job(
            2, state=3, devices=[0, 1], spec={"resources": {"cpuMilli": "1000", "memoryMib": "512", "devices": "2"}}, **executes
        )
    )
    fake.put(
        job(
            3,
            state=1,
            reason=6,
            causeJobId="4",
            executedTime="40s",
            **(placed | {"run": 2}),
            preemptedForTrial=1,
            reasonDetail="it had to go",
        )
    )
    fake.put(job(4, state=1, reason=4, spec={"jobClass": 1, "name": ""}))
    fake.put(job(5, state=7, reason=11, exitSignal=9, endTime="2026-01-02T03:05:01Z", executedTime="1s", **placed))
    return fake


def test_what_a_job_holds_is_guaranteed_or_not_only_where_it_has_a_virtual_cluster(run: Run, fake: Fake) -> None:
    placed = {"state": 3, "run": 1, "node": "n1", "startTime": "2026-01-02T03:05:00Z"}
    mine = {"spec": {"virtualCluster": "vision"}}
    fake.put(job(1, **placed))
    fake.put(job(2, **placed, guaranteed=True, **mine))
    fake.put(job(3, **placed, **mine))
    fake.put(job(4, state=1, **mine))
    header, *rows = run("list", "-o", "wide").output.splitlines()
    at = header.index("HOLDS")
    assert [row[at] for row in rows] == ["-", "O", "G", "-"], "newest first: waits, opportunistic, guaranteed, of no tenant"
    said = run("list", "--help").output
    assert "HOLDS is - for a job that holds nothing now, and for one without a virtual cluster" in " ".join(said.split())


def test_what_is_looked_for_here_is_not_counted(run: Run, fake: Fake) -> None:
    """A state with a reason, as PR: the scheduler looks for states alone."""
    for number in (1, 2):
        fake.put(job(number, state=1, reason=6))
    fake.put(job(3, state=1, reason=2))
    assert run("list", "-s", "PR", "--no-header").stdout.split()[0] == "2"
    assert run("list", "-s", "PR", "--limit", "1").stderr == "ebb: some more; --limit N or --all-pages shows them\n"
    assert run("list", "-s", "PR", "--limit", "2").stderr == ""


def test_list(run: Run, jobs: Fake) -> None:
    assert run("list").output == (
        "ID  NAME   USER  CLASS        STATE    REASON               RUN  NODE  DEV  TIME\n"
        "4   -      ada   trial        QUEUED   waiting for victims  0    -     0    -\n"
        "3   job-3  ada   best-effort  QUEUED   preempted for 4      2    -     0    0:40\n"
        "2   job-2  ada   best-effort  RUNNING  -                    1    n1    2    55:00\n"
    )
    assert run("list", "--no-header", "-s", "CD,failed").output == (
        "5  job-5  ada  best-effort  FAILED     signal 9 (SIGKILL)  1  n1  0  0:01\n"
        "1  job-1  ada  best-effort  SUCCEEDED  exit 0              1  n1  0  1:07\n"
    )
    assert run("list", "-q", "--all", "--limit", "3").output == "5\n4\n3\n"
    assert run("list", "-q", "--all", "--name", "job-3", "-u", "ada").output == "3\n"
    assert run("list", "-q", "-u", "bob").output == ""
    wide = run("list", "-o", "wide", "-s", "R").output.splitlines()[1]
    assert wide.endswith("1     512MiB  0,1      2026-01-02 03:04:05  python train.py 'a b'")
    assert [j["state"] for j in json.loads(run("list", "-a", "-o", "json").output)] == [
        "FAILED",
        "QUEUED",
        "QUEUED",
        "RUNNING",
        "SUCCEEDED",
    ]
    assert json.loads(run("list", "-s", "CA", "-o", "json").output) == []
    assert run("list", "--limit", "1", "--all-pages").exit_code == 2
    refused = run("list", "-s", "XX")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "'XX' is no state; states are QUEUED, STARTING" in refused.stderr


def test_show(run: Run, jobs: Fake) -> None:
    assert run("show", "3").output.splitlines()[:8] == [
        "id           3",
        "name         job-3",
        "user         ada",
        "class        best-effort",
        "state        QUEUED",
        "reason       preempted for 4: it had to go",
        "command      python train.py 'a b'",
        "needs        1.5 cpus, 4GiB",
    ]
    assert lines_of(run, 3, "node", "devices") == ["n1, when it ran last", "-, when it ran last"]
    assert lines_of(run, 2, "node", "devices") == ["n1", "0,1"]
    shown = json.loads(run("show", "3", "-o", "json").output)
    assert (shown["reason"], shown["cause_job_id"], shown["submit_time"]) == ("PREEMPTED", 4, "2026-01-02T03:04:05Z")
    assert shown["spec"]["resources"] == {"cpus": 1.5, "memory_mib": 4096, "devices": 0}
    assert yaml.safe_load(run("show", "3", "-o", "yaml").output) == shown


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"state": 6, "reason": 10}, ["code 0"]),
        ({"state": 7, "reason": 10, "exitCode": 3}, ["code 3"]),
        ({"state": 7, "reason": 11, "exitSignal": 9}, ["signal 9 (SIGKILL)"]),
        ({"state": 7, "reason": 13}, ["unknown"]),
        ({"state": 7, "reason": 12}, []),  # there was no process
        ({"state": 8, "reason": 9, "exitCode": 143}, ["code 143"]),
        ({"state": 8, "reason": 9}, []),  # 0, or nobody knows
        ({"state": 3}, []),
    ],
)
def test_the_exit_code_is_shown_where_it_is_known(run: Run, fake: Fake, fields: dict[str, Any], shown: list[str]) -> None:
    fake.put(job(1, run=1, **fields))
    lines = [line.split(maxsplit=1) for line in run("show", "1").output.splitlines()]
    assert [value for name, value in lines if name == "exit"] == shown


def lines_of(run: Run, job_id: int, *names: str) -> list[str]:
    """What `show` says under these names."""
    lines = dict(line.split(maxsplit=1) for line in run("show", str(job_id)).output.splitlines())
    return [lines[name] for name in names]


def test_the_devices_of_a_gang_are_its_tasks_own(run: Run, fake: Fake) -> None:
    tasks = [{"rank": rank, "node": "n1", "devices": [rank]} for rank in (0, 1)]
    groups = [{"count": 2, "resources": {"cpuMilli": "1000", "memoryMib": "1024", "devices": "1"}}]
    fake.put(job(1, state=3, run=1, node="n1", tasks=tasks, spec={"taskGroups": groups}))
    shown = run("show", "1").output
    assert "devices      see its tasks\n" in shown
    assert [line.split()[:3] for line in shown.splitlines()[-2:]] == [["0", "n1", "0"], ["1", "n1", "1"]]


def test_every_node_of_a_gang_is_named(run: Run, fake: Fake) -> None:
    tasks = [{"rank": rank, "node": node} for rank, node in enumerate(("n2", "n1", "n2"))]
    groups = [{"count": 3, "resources": {"cpuMilli": "1000"}}]
    fake.put(job(1, state=3, run=1, node="n2", tasks=tasks, spec={"taskGroups": groups}))
    assert "n2+1" in run("list", "--no-header").output.split()
    assert "\nnode         n2, n1\n" in run("show", "1").output


def test_who_waits_is_told_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_WORTH_A_WORD", 0)
    asked = CliRunner().invoke(ebb, ["--address", "127.0.0.1:1", "--timeout", "0.5", "list"])
    first, last = asked.stderr.splitlines()
    assert (first, asked.exit_code) == (f"{last}; trying again", 1)
    assert last.startswith("ebb: the scheduler at 127.0.0.1:1 cannot be reached (Connection refused); check that it runs")


def test_what_others_wrote_moves_no_cursor_and_makes_no_line(run: Run, fake: Fake) -> None:
    sly = "\x1b]0;title\x07\n2026-01-02 03:05:00  cancelled by root"
    fake.put(job(1, state=7, reason=12, reasonDetail=sly, run=1))
    event = {"kind": 5, "text": sly, "time": "2026-01-02T03:05:00Z", "jobId": "1"}
    fake.events = [json_format.ParseDict(event, job_pb2.JobEvent())]
    for command in (("story", "1"), ("wait", "1"), ("explain", "1"), ("show", "1")):
        said = run(*command)
        assert not {"\x1b", "\x07"} & set(said.output), command
        assert not [line for line in said.output.splitlines() if line.startswith("2026-01-02 03:05:00  cancelled")], command


def test_with_its_output_closed_a_command_does_what_it_is_to_do(address: str, fake: Fake) -> None:
    command = [sys.executable, "-c", "from client_sdk.cli import main; main()", "submit", "--", "true"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "-", *command], stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr, len(fake.jobs)) == (0, "", 1)


def test_what_a_terminal_cannot_show_is_replaced(address: str, fake: Fake) -> None:
    fake.put(job(1, state=3, spec={"name": "na\u00efve \u2603"}))
    command = [sys.executable, "-c", "from client_sdk.cli import main; main()", "show", "1"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment)
    assert "na\u00efve ?".encode("latin-1") in shown.stdout


def test_of_a_job_that_starts_it_is_said_whose_turn_it_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    starting = convert.job(job_pb2.Job(id=1, state=job_pb2.JOB_STATE_STARTING, node="n1"))
    monkeypatch.setattr(Client, "explain", lambda _client, _job_id: Explanation(job=starting))
    assert run("explain", "1").output == (
        "job 1 is STARTING on n1\n"
        "it has its place, and its node has not said yet that it runs; where that lasts, the log of the agent there says why\n"
    )


def test_story(run: Run, jobs: Fake) -> None:
    victim = {
        "jobId": "3",
        "run": 1,
        "node": "n1",
        "demand": {"cpuMilli": "1000", "memoryMib": "1024", "devices": "1"},
        "nodeFree": {"cpuMilli": "500", "memoryMib": "512"},
        "size": 0.25,
        "gracePeriod": "30s",
        "score": 1.125,
        "sufficient": True,
        "chosen": True,
    }
    decision = {
        "trialJobId": "4",
        "node": "n1",
        "demand": {"cpuMilli": "1000", "memoryMib": "1024", "devices": "1"},
        "rule": "fitgpp",
        "s": 4.0,
        "cap": 1,
        "considered": 2,
        "candidates": [victim, victim, victim | {"jobId": "2", "score": 2.5, "chosen": False, "sufficient": False}],
    }
    rows: list[dict[str, Any]] = [
        {"kind": 1},
        {"kind": 2, "run": 1, "node": "n1"},
        {"kind": 3, "run": 1, "node": "n1"},
        {"kind": 5, "run": 1, "node": "n1", "causeJobId": "4", "decision": decision},
        {"kind": 6, "run": 1, "node": "n1", "exitCode": 143},
        {"kind": 7, "reason": 6, "causeJobId": "4"},
        {"kind": 3, "run": 2, "node": "n1"},
        {"kind": 6, "run": 2, "node": "n1", "reason": 13, "text": "saved its work and left"},
        {"kind": 6, "run": 3, "node": "n1", "exitSignal": 15, "text": "left before it began"},
        {"kind": 11, "run": 2, "node": "n1", "exitSignal": 9, "reason": 11, "text": "it is over"},
    ]
    base = {"jobId": "3", "time": "2026-01-02T03:04:05Z"}
    jobs.events = [json_format.ParseDict(base | row, job_pb2.JobEvent()) for row in rows]
    assert run("story", "3").output == (
        "2026-01-02 03:04:05  submitted\n"
        "2026-01-02 03:04:05  placed on n1 (run 1)\n"
        "2026-01-02 03:04:05  started on n1 (run 1)\n"
        "2026-01-02 03:04:05  preempted for trial 4 on n1 (run 1)\n"
        "    trial 4 asks for 1 cpu, 1GiB, 1 device; rule fitgpp, s 4, cap 1, 2 considered\n"
        "    JOB  RUN  NODE  DEMAND                 FREE              SIZE    GRACE  SCORE   PREEMPTED  FITS  CHOSEN\n"
        "    3    1    n1    1 cpu, 1GiB, 1 device  0.5 cpus, 512MiB  0.2500  30s    1.1250  0          yes   chosen\n"
        "    2    1    n1    1 cpu, 1GiB, 1 device  0.5 cpus, 512MiB  0.2500  30s    2.5000  0          no\n"
        "2026-01-02 03:04:05  left on n1 (run 1), exit 143\n"
        "2026-01-02 03:04:05  back in the queue: preempted for 4\n"
        "2026-01-02 03:04:05  started on n1 (run 2)\n"
        "2026-01-02 03:04:05  left on n1 (run 2), exit unknown - saved its work and left\n"
        "2026-01-02 03:04:05  left on n1 (run 3) - left before it began\n"
        "2026-01-02 03:04:05  ended, signal 9 (SIGKILL) on n1 (run 2) - it is over\n"
    )
    told = json.loads(run("story", "3", "-o", "json").output)
    assert told[3]["decision"]["candidates"][0]["grace_period"] == 30.0


def test_node_list(run: Run, fake: Fake) -> None:
    row = {
        "name": "n1",
        "state": 1,
        "capacity": {"cpuMilli": "8000", "memoryMib": "16384", "devices": "2"},
        "free": {"cpuMilli": "7500", "memoryMib": "8192", "devices": "1"},
        "devices": [{"index": 0, "model": "sim"}, {"index": 1, "model": "sim"}],
        "shareGroups": [{"device": 1, "jobIds": ["7"]}],
    }
    fake.nodes = [json_format.ParseDict(row, cluster_pb2.Node())]
    assert run("node", "list").output == (
        "NAME  STATE  CPUS   MEMORY      DEVICES  EARMARKED  JOBS\nn1    UP     7.5/8  8GiB/16GiB  1/2      -          7\n"
    )
    assert json.loads(run("node", "list", "-o", "json").output)[0]["devices"][1]["job_ids"] == [7]
    assert run("node", "list", "-q").output == "n1\n"


def test_submit_with_alternatives(run: Run, fake: Fake, tmp_path: Path) -> None:
    submitted = run(
        "submit", "--export", "NONE", "--cwd", "/", "--gpus", "1", "--model", "A100", "--device-memory", "40GiB",
        "--node-label", "zone=a,disk=nvme", "--exclude-node", "n7,n8",
        "--or", "gpus=2 model=V100 estimate=3h",
        "--or", "cpus=16 command='python train.py --cpu' env=LR=0.1 env=A=b exclude-nodes=n9",
        "train",
    )  # fmt: skip
    assert submitted.exit_code == 0, submitted.output
    spec = convert.spec(fake.submits[-1].spec)
    assert (spec.cells.model, spec.device_memory_mib) == ("A100", 40960)
    assert (spec.nodes.labels, spec.nodes.excluded) == ({"zone": "a", "disk": "nvme"}, ("n7", "n8"))
    first, second = spec.alternatives
    assert (first.resources.devices, first.cells.model, first.estimate) == (2, "V100", timedelta(hours=3))
    assert (second.resources.cpus, second.resources.devices) == (16, 0)
    assert second.command == ("python", "train.py", "--cpu")
    assert (second.environment, second.nodes.excluded) == ({"LR": "0.1", "A": "b"}, ("n9",))
    file = tmp_path / "job.yaml"
    file.write_text(
        "command: [train]\ncwd: /\nexport: NONE\ngpus: 1\nmodel: A100\ndevice_memory: 40GiB\n"
        "node_labels: {zone: a, disk: nvme}\nexclude_nodes: [n7, n8]\n"
        "alternatives:\n- {gpus: 2, model: V100, estimate: 3h}\n"
        "- {cpus: 16, command: [python, train.py, --cpu], env: {LR: 0.1, A: b}, exclude_nodes: [n9]}\n"
    )
    assert run("submit", "-f", str(file)).exit_code == 0
    assert convert.spec(fake.submits[-1].spec) == spec
    for wrong, said in (
        ("gpu=1", "--or: .*gpu.*alternative"),
        ("devices", "'devices' has no value"),
        ("devices=x", "devices: 'x' is not a whole number"),
        ("command='a", "No closing quotation"),
    ):
        refused = run("submit", "--or", wrong, "train")
        assert refused.exit_code != 0
        assert re.search(said, refused.stderr), refused.stderr


def test_submit(run: Run, fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FROM_HERE", "x=y")
    options = ["--trial", "--name", "n", "--cpus", "0.5", "--memory", "2GiB", "--gpus", "1", "--grace", "30s", "--cwd", "sub"]
    submitted = run(
        "submit",
        *options,
        "--export",
        "NONE",
        "--env",
        "A=b=c",
        "-e",
        "FROM_HERE",
        "--request-id",
        "r",
        "--",
        "python",
        "-c",
        "--help",
    )
    assert (submitted.exit_code, submitted.output) == (0, "submitted job 1\n")
    assert json_format.MessageToDict(fake.submits[0]) == {
        "requestId": "r",
        "spec": {
            "name": "n",
            "jobClass": "JOB_CLASS_TRIAL",
            "command": ["python", "-c", "--help"],
            "environment": {"A": "b=c", "FROM_HERE": "x=y"},
            "workingDirectory": str(tmp_path / "sub"),
            "resources": {"cpuMilli": "500", "memoryMib": "2048", "devices": "1"},
            "gracePeriod": "30s",
        },
    }
    assert run("submit", "-q", "sleep", "-x").output == "2\n"
    assert json.loads(run("submit", "-o", "json", "true").output)["spec"]["job_class"] == "BEST_EFFORT"
    assert run("submit").exit_code == 2
    refused = run("submit", "--memory", "lots", "true")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "ebb: --memory: 'lots' is not an amount of memory; write it like 4GiB, 512MiB or 1.5G\n"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"state": 6, "reason": 10}, 0),
        ({"state": 7, "reason": 10, "exitCode": 3}, 3),
        ({"state": 7, "reason": 11, "exitSignal": 9}, 137),
        ({"state": 7, "reason": 12}, 1),
        ({"state": 8, "reason": 9}, 143),
        ({"state": 8, "reason": 9, "exitCode": 7}, 7),
        ({"state": 10, "reason": 19, "exitCode": 143}, 143),
        ({"state": 10, "reason": 19}, 143),
        ({"state": 7, "reason": 28, "array": {"size": 2, "failed": 1}}, 1),
    ],
)
def test_wait_leaves_as_the_job_did(run: Run, fake: Fake, fields: dict[str, Any], status: int) -> None:
    fake.put(job(1, **fields))
    fake.put(job(2, state=6, reason=10))
    assert run("wait", "1").exit_code == status
    both = run("wait", "2", "1", "-o", "json")
    assert both.exit_code == status
    assert [j["id"] for j in json.loads(both.output)] == [2, 1]


@pytest.mark.parametrize("value", ["abc", "0", "1.5", "٣", "9" * 5000])
def test_what_is_no_id_is_told(run: Run, value: str) -> None:
    done = run("show", "--", value)
    assert done.exit_code == 2
    assert f"Invalid value for 'ID': {value!r} is no id; ids are whole numbers from 1\n" in done.stderr


def test_wait_goes_on_after_an_error(run: Run, fake: Fake) -> None:
    fake.put(job(2, state=6, reason=10))
    some = run("wait", "9", "2")
    assert (some.exit_code, some.stdout) == (1, "job 2 SUCCEEDED (exit 0)\n")
    assert some.stderr == "ebb: job 9 does not exist\n"


def test_wait_times_out(run: Run, jobs: Fake) -> None:
    late = run("wait", "2", "--timeout", "200ms")
    assert (late.exit_code, late.stdout) == (124, "")
    assert late.stderr == "ebb: job 2 has not ended within 200ms; it goes on\n"


def test_cancel(run: Run, jobs: Fake) -> None:
    some = run("cancel", "2", "99", "3")
    assert (some.exit_code, some.stdout) == (1, "job 2 is cancelled\njob 3 is cancelled\n")
    assert some.stderr == "ebb: job 99 does not exist\n"
    assert run("cancel", "-q", "4").output == "4\n"


def test_errors_are_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = run("show", "9")
    assert (missing.exit_code, missing.stdout, missing.stderr) == (1, "", "ebb: job 9 does not exist\n")
    away = run("--address", "127.0.0.1:1", "--timeout", "0.3", "list", "-o", "json")
    assert (away.exit_code, away.stdout) == (1, "")
    assert away.stderr.startswith(
        "ebb: the scheduler at 127.0.0.1:1 cannot be reached (Connection refused); check that it runs"
    )
    assert run("show", "0").exit_code == 2
    assert run("nonsense").exit_code == 2
    monkeypatch.setenv("EBB_DEBUG", "1")
    assert type(run("show", "9").exception).__name__ == "NotFound"


def test_logs(run: Run, jobs: Fake) -> None:
    jobs.log_answers = [
        [b"", b"hello\n"],
        [b"", b"hel", b"lo\n"],
        [],
        [b"", b"two\n"],
        ["NOT_STARTED"],
        *[["NODE_NOT_CONNECTED true"]] * 5,  # 10 ms may be enough to ask again
    ]
    assert run("logs", "1").output == "hello\n"
    assert run("logs", "-f", "1").output == "hello\n"
    assert run("logs", "-f", "--run", "2", "--task", "3", "1").output == "two\n"
    assert [(r.run, r.task, r.follow) for r in jobs.log_requests] == [(0, 0, False), (0, 0, True), (2, 0, True), (2, 3, True)]
    missing = run("logs", "4")
    assert (missing.exit_code, missing.stderr) == (1, "ebb: the log says NOT_STARTED\n")
    away = run("--timeout", "0.01", "logs", "1")
    assert (away.exit_code, away.stderr) == (1, "ebb: the log says NODE_NOT_CONNECTED true\n"), "no advice to look elsewhere"


VERBS = [[name] for name in ebb.commands] + [["node", name] for name in nodes.node.commands]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_has_examples(run: Run, verb: list[str]) -> None:
    shown = run(*verb, "--help")
    assert shown.exit_code == 0
    assert f"ebb {' '.join(verb)}" in shown.output.split("Example", 1)[1]


def start(*arguments: str, more: Mapping[str, str] = MappingProxyType({}), **options: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", "-c", "from client_sdk.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / p) for p in (".", "proto", "third_party")), **more}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **(pipes | options))


def test_a_real_process(address: str, jobs: Fake) -> None:
    process = start("list", "-q")
    assert process.communicate(timeout=30) == ("4\n3\n2\n", "")
    assert process.returncode == 0


def test_a_full_disk_under_the_output_is_said(address: str, jobs: Fake) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("list", stdout=full)
        assert process.communicate(timeout=30)[1] == "ebb: the output cannot be written: No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize("form", [["-q"], [], ["-o", "json"]])
def test_the_id_of_a_job_is_not_lost_on_a_full_disk(address: str, fake: Fake, form: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("submit", *form, "true", stdout=full)
        said = process.communicate(timeout=30)[1].splitlines()
    assert said == ["ebb: job 1 is submitted all the same", "ebb: the output cannot be written: No space left on device"]
    assert (process.returncode, [*fake.jobs]) == (1, [1])


def test_a_reader_that_leaves_is_no_error(address: str, fake: Fake) -> None:
    """The table is longer than what a pipe holds, so that some of it is written after the reader has left."""
    for i in range(1, 3000):
        fake.jobs[i] = job(i, state=1)
    fake.page = 1000
    process = start("list", "--all-pages")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ID ")
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(30) == 141


def test_after_control_c_it_is_said_that_the_job_goes_on(address: str, jobs: Fake) -> None:
    process = start("wait", "2")
    until(lambda: jobs.watches)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "ebb: job 2 goes on; `ebb cancel 2` ends it\n")
    assert process.returncode == 130


def test_the_version(run: Run) -> None:
    assert run("--version").output == run("version").output
    assert run("--version").output.startswith("ebb ")


def test_help_needs_no_grpc() -> None:
    code = "import sys, client_sdk.training\nfrom client_sdk.cli import ebb\nebb(['--help'], standalone_mode=False)\n"
    slow = "print([m for m in ('grpc', 'google.protobuf', 'rich', 'stamina', 'yaml', 'numpy', 'asyncio') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code + slow], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_the_help_on_a_full_disk(asked: str) -> None:
    with Path("/dev/full").open("w") as full:
        process = start(asked, stdout=full)
        assert process.communicate(timeout=30)[1] == "ebb: the output cannot be written: No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize("arguments", [["--timeout", "nan", "list"], ["submit", "--cpus", "nan", "true"], ["top", "-d", "nan"]])
def test_what_is_no_number_is_refused(arguments: list[str]) -> None:
    process = start(*arguments)
    assert "'nan' is no number" in process.communicate(timeout=30)[1]
    assert process.returncode == 2
