"""Whether this machine has CRIU, which writes a tree of processes to disk and makes it run again."""

import os
import re

from node_agent.processes.command_with_timeout import run_limited

PROGRAM = "criu"
OLDEST = (4, 2)
"""The oldest version that is used. 3.17, which Debian 12 has, fails on current kernels."""
_CHECK_LIMIT = 20.0


async def unusable(program: str = PROGRAM) -> str:
    """Return why this machine cannot dump or restore, and what to do; empty if it can."""
    version = await run_limited([program, "--version"], _CHECK_LIMIT)
    if version.status != 0:
        return f"CRIU is not installed ({version.output}): install CRIU 4.2 or later"
    if (found := _version(version.output)) is None or found < OLDEST:
        said = version.output.splitlines()[0] if version.output else "nothing"
        return f"CRIU is too old ({said}): install CRIU 4.2 or later"
    if os.geteuid() != 0:
        return "the agent may not use CRIU: run it as root (allow_root)"
    check = await run_limited([program, "check"], _CHECK_LIMIT)
    lines = check.output.splitlines()
    said = lines[-1] if lines else "it says nothing"
    return "" if check.status == 0 else f"CRIU does not work on this kernel ({said}): run `criu check`, and set criu to off"


def _version(output: str) -> tuple[int, int] | None:
    found = re.search(r"Version:\s*(\d+)\.(\d+)", output)
    return None if found is None else (int(found[1]), int(found[2]))
