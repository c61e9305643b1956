"""The rules that limit connections: what is printed, and that a kernel with nft holds to them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from scheduler_service.commands.main import main

PORT = 45_991
CONNECTIONS = """
import socket
server = socket.create_server(("127.0.0.1", {port}), backlog=50)
made = []
for _ in range(8):
    try:
        made.append(socket.create_connection(("127.0.0.1", {port}), 5))
    except ConnectionRefusedError:
        pass
print(len(made))
made.pop().close()
"""


def printed(tmp_path: Path, settings: str) -> tuple[int, str]:
    file = tmp_path / "scheduler.yaml"
    file.write_text(f"embedded: {tmp_path}/db\n{settings}")
    done = CliRunner().invoke(main, ["firewall", "--config", str(file)])
    return done.exit_code, done.output


def test_the_default_is_64_connections_of_an_address(tmp_path: Path) -> None:
    status, rules = printed(tmp_path, "")
    assert status == 0
    assert "tcp dport 7737 ct state new add @connections4 { ip saddr ct count over 64 }" in rules
    assert "tcp dport 7737 ct state new add @connections6 { ip6 saddr ct count over 64 }" in rules


def test_no_limit_removes_the_rules_and_makes_none(tmp_path: Path) -> None:
    assert printed(tmp_path, "connections_per_address: 0") == (0, "table inet ebb_scheduler\ndelete table inet ebb_scheduler\n")


def test_a_port_that_is_not_known_is_refused(tmp_path: Path) -> None:
    status, said = printed(tmp_path, "listen: 127.0.0.1:0")
    assert (status, "port 0" in said) == (2, True)


def _can_try() -> bool:
    if os.geteuid() != 0 or not shutil.which("nft") or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "-n", "nft", "list", "tables"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _can_try(), reason="needs root, nft and a network namespace of its own")
def test_the_kernel_lets_in_so_many_and_rules_can_be_loaded_again(tmp_path: Path) -> None:
    _, rules = printed(tmp_path, f"listen: 127.0.0.1:{PORT}\nconnections_per_address: 5")
    (tmp_path / "rules").write_text(rules)
    (tmp_path / "connect.py").write_text(CONNECTIONS.format(port=PORT))
    script = (
        f"ip link set lo up && nft -f {tmp_path}/rules && nft -f {tmp_path}/rules && {sys.executable} {tmp_path}/connect.py"
    )
    done = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("5\n", "")
