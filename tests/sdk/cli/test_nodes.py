"""Nodes: the verbs that change them, and what is shown of them, also on a terminal."""

import contextlib
import json
import os
import pty
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from click.testing import CliRunner

from client_sdk import (
    Client,
    Device,
    DeviceObservation,
    Job,
    JobReason,
    JobState,
    MemoryCycle,
    Observations,
    Resources,
    testing,
)
from client_sdk.cli import ebb
from client_sdk.testing import FakeCluster, Outcome
from tests.sdk.cli.conftest import Run, refused
from tests.sdk.test_cli import start


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


@pytest.mark.parametrize("limit", [1, 2])
def test_a_node_on_which_only_a_users_jobs_fail_says_which(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are one strike, however many they are."""

    def script(job: Job) -> Outcome:
        return Outcome(exit_code=2 if job.node == "n1" else 0)

    def shown(name: str) -> str:
        lines = CliRunner().invoke(ebb, ("node", "show", "n1"), prog_name="ebb").output.splitlines()
        (found,) = (line.removeprefix(name).strip() for line in lines if line.startswith(f"{name} "))
        return found

    nodes = {"n1": Resources(cpus=8, memory_mib=16 * 1024), "n2": Resources(cpus=8, memory_mib=16 * 1024)}
    with testing.cluster(nodes, script=script, user="ada", config={"bad_node_strikes": limit, "retry_pause": 0}) as fake:
        monkeypatch.setenv("EBB_ADDRESS", fake.address)
        client = fake.client()
        for _ in range(4):
            job = client.wait(client.submit(["read-data"], retries=3))
            assert (job.state, job.node) == (JobState.SUCCEEDED, "n2")
        assert shown("strikes") == "1"
        if limit == 1:
            assert shown("drain").startswith("1 strike: job 1 of ada failed here and succeeded elsewhere, by Ebb at ")
        else:
            assert shown("drain") == "-"


def test_a_node_is_shown(run: Run) -> None:
    run("submit", "-q", "-g", "1", "sleep")
    lines = run("node", "show", "n1").output.splitlines()
    assert lines[0] == "name       n1"
    assert lines[1].startswith("state      UP since ")
    assert "free       5 cpus, 9GiB, 1 device" in lines
    assert "observed   -" in lines
    assert lines[-3:] == [
        "DEVICE  MODEL  MEMORY  JOBS",
        "0       Fake   2GiB    1",
        "1       Fake   2GiB    -",
    ]
    assert "earmarked  -" in lines
    assert run("node", "show", "n1", "-o", "wide").output.splitlines()[-2:] == [
        "0       Fake   2GiB    n1-0  1",
        "1       Fake   2GiB    n1-1  -",
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
    assert lines[3].split() == ["n1", "UP", "2/8", "2GiB/16GiB", "0/2", "-", "1"]
    assert lines[6].split()[:5] == ["ID", "NAME", "USER", "CLASS", "STATE"]
    assert lines[7].split()[:8] == ["1", "big", "ada", "best-effort", "RUNNING", "-", "n1", "6"]
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
    assert any(re.match(r"observed   [0-9-]+ [0-9:]+$", line) for line in lines)
    assert lines[-10:] == [
        "",
        "DEVICE  MODEL  MEMORY  USED   UTIL  JOBS",
        "0       Fake   2GiB    23GiB  97%   1",
        "1       Fake   2GiB    -      -     1",
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
    assert re.fullmatch(r"[0-9-]+T[0-9:.]+Z", told["observations"]["time"])
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
