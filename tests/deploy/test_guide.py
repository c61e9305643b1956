"""docs/installing.md, as far as it can be looked at without machines; `python -m tests.deploy.walk` runs it on two."""

import re
import subprocess
from pathlib import Path

import pytest

from node_agent.commands.main import main as ebb_agent
from node_agent.config import load as load_agent
from scheduler_service.commands.main import main as ebb_scheduler
from scheduler_service.config import load as load_scheduler
from tests.certificates import Authority
from tests.deploy.guide import GUIDE, MACHINES, blocks, files

ROOT = Path(__file__).parents[2]
BLOCKS = blocks(GUIDE.read_text())
RUN = [block for block in BLOCKS if block.machine]


def test_the_page_is_read() -> None:
    assert {block.machine for block in BLOCKS} == {"", *MACHINES}
    assert [block.heading for block in BLOCKS if not block.machine] == ["The driver"], "all else is walked through"
    assert GUIDE.read_text().count("```sh") == len(BLOCKS)
    assert len(RUN) >= 12


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.heading)
def test_a_shell_can_read_it(block: object) -> None:
    subprocess.run(["sh", "-n"], input=block.script, text=True, check=True)  # type: ignore[attr-defined]


def test_its_settings_are_settings(tmp_path: Path) -> None:
    """With the files that they name made here, each program takes them."""
    written = {path: text for block in RUN for path, text in files(block.script).items()}
    assert set(written) == {"/etc/ebb/scheduler.yaml", "/etc/ebb/agent.yaml"}
    authority = Authority(tmp_path / "ebb")
    pair = authority.issue("scheduler", "DNS:sched.example.org")
    (tmp_path / "ebb" / "agent.token").write_text("ebb_x\n")
    assert {path.name for path in pair} <= {path.name for path in (tmp_path / "ebb").iterdir()}
    for name, text in written.items():
        (tmp_path / "ebb" / Path(name).name).write_text(text.replace("/etc/ebb/", f"{tmp_path}/ebb/"))
    scheduler = load_scheduler(tmp_path / "ebb" / "scheduler.yaml", {})
    agent = load_agent({}, tmp_path / "ebb" / "agent.yaml")
    assert scheduler.tls is not None
    assert scheduler.advertise == agent.scheduler
    assert (scheduler.auth, agent.devices) == ("token", "dgx-a100")
    assert agent.security.tls_ca == authority.certificate


def test_what_it_copies_is_there() -> None:
    scripts = "".join(block.script for block in RUN)
    named = set(re.findall(r"\bebb-(?:agent|scheduler)\.(?:service|default)\b", scripts))
    assert named == {path.name for path in (ROOT / "deploy" / "systemd").iterdir()}


def test_its_commands_are_there() -> None:
    scripts = "".join(block.script for block in RUN)
    for program, command in (("ebb-agent", ebb_agent), ("ebb-scheduler", ebb_scheduler)):
        verbs = set(re.findall(rf"/bin/{program} (\w+)", scripts))
        assert verbs
        assert verbs <= set(command.commands)  # type: ignore[attr-defined]
    for link in re.findall(r"\]\((?!http)([^)#]+)", GUIDE.read_text()):
        assert (GUIDE.parent / link).exists(), link
