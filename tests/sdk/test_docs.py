"""The examples of docs/testing-your-code.md, run as a user's project would run them; and those of docs/using.md that submit the
same job in three ways, or ask for nodes."""

import os
import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from client_sdk._protobuf import convert
from client_sdk.cli import ebb
from client_sdk.models import DEFAULT, JobSpec
from tests.sdk.fake import Fake

ROOT = Path(__file__).parents[2]


def section(title: str) -> str:
    """Of docs/using.md."""
    text = (ROOT / "docs" / "using.md").read_text()
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)


def submitted(fake: Fake, command: list[str]) -> JobSpec:
    done = CliRunner().invoke(ebb, command)
    assert done.exit_code == 0, (command, done.output)
    return convert.spec(fake.submits[-1].spec)


@pytest.mark.usefixtures("address")
def test_the_job_with_configurations_is_the_same_in_three_ways(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    title = "Configurations"
    (command,) = [shlex.split(line) for block in blocks(title, "sh") for line in block.splitlines()]
    said = submitted(fake, command[1:])
    assert [(one.resources.devices, one.resources.cpus, one.cells.model) for one in said.configurations] == [
        (1, DEFAULT, "A100-SXM4-80GB"),
        (2, DEFAULT, "V100-SXM2-32GB"),
        (0, 16, ""),
    ]
    assert [one.estimate for one in said.configurations] == [timedelta(hours=hours) for hours in (1, 3, 20)]
    assert said.configurations[2].command == ("python", "train.py", "--cpu")
    assert [dict(one.environment) for one in said.alternatives] == [{}, {"LR": "0.05"}]
    (file,) = blocks(title, "yaml")
    (tmp_path / "either.yaml").write_text(file)
    assert submitted(fake, ["submit", "-f", "either.yaml"]) == said
    (program,) = blocks(title, "python")
    exec(compile(program, "either.py", "exec"), {})
    assert convert.spec(fake.submits[-1].spec) == said


@pytest.mark.usefixtures("address")
def test_commands_that_ask_for_nodes(fake: Fake) -> None:
    lines = [line for block in blocks("Certain nodes and devices", "sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    specs = [submitted(fake, command) for command in commands if command[0] == "submit"]
    assert [spec.device_memory_mib for spec in specs] == [40_960, 0, 0, 0]
    assert [dict(spec.nodes.labels) for spec in specs] == [{}, {"zone": "a", "disk": "nvme"}, {}, {}]
    assert [(spec.nodes.names, spec.nodes.excluded) for spec in specs[2:]] == [(("n1", "n2"), ()), ((), ("n7",))]
    assert CliRunner().invoke(ebb, commands[0]).exit_code == 0


def test_the_examples_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "testing-your-code.md").read_text()
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("```python")
    for name, block in blocks:
        (tmp_path / name).write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    where = os.pathsep.join(str(path) for path in (tmp_path, ROOT, ROOT / "proto", ROOT / "third_party"))
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    site = {"EBB_TLS_CA": "/etc/ebb/ca.pem", "EBB_TOKEN_FILE": "/home/ada/.ebb-token", "EBB_VC": "vision"}  # in ada's profile
    environment = {**os.environ, **site, "PYTHONPATH": where}
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{text.count('def test_')} passed" in done.stdout
