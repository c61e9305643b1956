"""What tells an agent that nothing of before can be alive."""

import shutil
import subprocess
import sys

import pytest

from node_agent.processes.process_groups import boot_id

SAY = "from node_agent.processes.process_groups import boot_id; print(boot_id())"
OWN_PROCESSES = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
"""As in a container."""


def test_it_is_the_same_for_every_process_of_a_boot() -> None:
    done = subprocess.run([sys.executable, "-c", SAY], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == boot_id()


def test_it_is_another_in_a_container_that_was_started_anew() -> None:
    """Its kernel goes on, and so does the id of that: jobs were taken for vanished there, not for lost."""
    if shutil.which("unshare") is None or subprocess.run([*OWN_PROCESSES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a namespace of processes: " + " ".join(OWN_PROCESSES))
    said = [
        subprocess.run(
            [*OWN_PROCESSES, sys.executable, "-c", SAY], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        for _ in range(2)
    ]
    assert len({boot_id(), *(each.strip() for each in said)}) == 3
    assert {each.split("/")[0] for each in said} == {boot_id().split("/")[0]}
