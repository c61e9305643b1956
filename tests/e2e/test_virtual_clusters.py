"""Two tenants on two machines, as docs/virtual-clusters.md has operators and tenants do it: real processes and commands."""

import json
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from client_sdk import JobEventKind, JobState
from client_sdk.cli import ebb as main
from tests.harness import LIMIT, Site, run
from tests.store.waiting import wait_for

CONFIGURATION = """
virtual_clusters: true
reclaim_grace: 5
pools:
  - name: a100
    nodes: [n1, n2]
"""


PAGE = Path(__file__).parents[2] / "docs" / "virtual-clusters.md"


def test_every_command_of_the_page_does_what_it_says(folder: Path) -> None:
    """In the order of the page, which tells one story."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    said = [command[1:] for command in commands if command[0] == "ebb"]
    assert len(said) == len(commands) - 1 > 14, "but for the export of EBB_VC, all are commands"
    file = folder / "scheduler.yaml"
    file.write_text(re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[0])
    with Site(folder / "site", ["--config", str(file)]) as site:
        for command in said:
            done = CliRunner().invoke(main, command, env={"EBB_ADDRESS": site.cluster.address, "EBB_VC": "vision"})
            assert done.exit_code == 0, (command, done.output)
        assert {vc.name: vc.weight for vc in site.client.virtual_clusters()} == {"vision": 1, "speech": 1}


def test_a_guarantee_is_kept_whatever_others_do_and_survives_the_scheduler(folder: Path) -> None:
    file = folder / "scheduler.yaml"
    recording = folder / "recording.jsonl"
    file.write_text(f"{CONFIGURATION}record: {recording}\n")
    with Site(folder / "site", ["--config", str(file)]) as site:

        def ebb(*arguments: str, status: int = 0, **environment: str) -> str:
            done = CliRunner().invoke(main, arguments, env={"EBB_ADDRESS": site.cluster.address, **environment})
            assert done.exit_code == status, done.output
            return done.output

        def submit(*arguments: str, **environment: str) -> int:
            return int(ebb("submit", "-q", "--cwd", "/", *arguments, "--", "sleep", "1000", **environment))

        def kept() -> Any:
            """What a restart must bring back."""
            return [json.loads(ebb(*asked, "-o", "json")) for asked in (("vc", "list"), ("cells",))]

        # The operator promises a machine to each, and cannot promise more.
        ebb("vc", "create", "vision", "--quota", "a100/node=1")
        ebb("vc", "create", "vision", "--quota", "a100/node=1")
        ebb("vc", "create", "speech", "--quota", "a100/node=1", "--weight", "2")
        refused = ebb("vc", "create", "third", "--quota", "a100/switch=3", status=1)
        assert "pool a100 has 3 cells of the level switch too few" in refused

        # One tenant takes all that is idle, with its own machine's worth of it on the other's.
        borrowed = [submit("--opportunistic", "--devices", "8", EBB_VC="speech") for _ in range(2)]
        for job in borrowed:
            wait_for(lambda job=job: site.client.get(job).state is JobState.RUNNING, LIMIT)  # type: ignore[misc]
        assert site.client.virtual_cluster("speech").opportunistic_devices == 16

        # The other wants what is its own.
        owned = submit("--vc", "vision", "--devices", "8", "--cell", "node")
        wait_for(lambda: site.client.get(owned).state is JobState.RUNNING, LIMIT)
        job = site.client.get(owned)
        assert (job.guaranteed, job.devices) == (True, tuple(range(8)))
        victims = [other for other in borrowed if site.client.get(other).state is not JobState.RUNNING]
        assert len(victims) == 1, "one machine's worth had to go, and no more"
        told = next(line for line in site.client.story(victims[0]) if line.kind is JobEventKind.RECLAIMED)
        assert told.cause_job_id == owned
        listed = {line.split()[0]: line.split() for line in ebb("list", "-o", "wide", "--no-header").splitlines()}
        assert {number: next(word for word in line if word in ("G", "O", "QUEUED")) for number, line in listed.items()} == {
            str(owned): "G",
            str(victims[0]): "QUEUED",
            str(next(other for other in borrowed if other not in victims)): "O",
        }
        drawing = ebb("cells")
        assert f"{job.node}  [[[GG][GG]][[GG][GG]]]  vision: node" in drawing
        assert "[[[oo][oo]][[oo][oo]]]" in drawing
        assert drawing.splitlines()[0] == "a100: Simulated A100-SXM4-80GB, node > socket > switch > device"
        mine = ebb("cells", "--vc", "vision")
        assert (job.node or "-") in mine
        assert "oo" not in mine

        # It all is there again when the scheduler has gone and come back.
        before, nodes = kept(), site.client.nodes()
        assert before[0][0]["cells"] == [
            {"pool": "a100", "level": "node", "owned": 1, "bound": 1, "free": 0, "faulty": 0, "taken": 0, "given": 0},
        ]
        site.cluster.kill("scheduler", signal.SIGKILL)
        site.restart_scheduler()
        site.wait_connected(since=nodes)
        after = kept()
        assert after[0] == before[0]
        assert json.dumps(after[1], indent=1).splitlines() == json.dumps(before[1], indent=1).splitlines()
        assert site.client.get(owned).guaranteed

        # Whoever loses its guarantee runs on, and a virtual cluster without jobs can go.
        assert "has 1 live jobs" in ebb("vc", "delete", "vision", status=1)
        assert "would lose its guarantee" in ebb("vc", "update", "vision", "--no-quotas", status=1)
        assert site.client.get(owned).guaranteed
        ebb("vc", "update", "vision", "--no-quotas", "--force")
        assert not site.client.get(owned).guaranteed
        assert site.client.get(owned).state is JobState.RUNNING
        site.client.cancel(owned)
        wait_for(lambda: site.client.get(owned).state is JobState.CANCELLED, LIMIT)
        assert ebb("vc", "delete", "vision") == "deleted virtual cluster vision\n"
        assert ebb("vc", "list", "-q") == "speech\n"
    replayed = run([sys.executable, "-m", "scheduler_service", "record", "replay", str(recording)])
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.startswith("the same: ")
    text = recording.read_text()
    assert text.count('["Section",') == 2
    assert '["VcRequested",' in text
    assert '["Binding",' in text, "the second leadership began with a cell that was bound"
