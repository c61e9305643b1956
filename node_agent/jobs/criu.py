"""Writes a tree of processes to disk and makes it run again, by CRIU: for programs that cannot checkpoint themselves (ADR 44).

A tree is restored with the pids, paths and libraries that it had, so on another machine these must be the same, and the pids
free. For a program on a GPU, CRIU needs NVIDIA's plugin, which suspends the program by the driver (`driver_checkpoint`).
"""

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from node_agent.jobs.limited_run import Ended, run_limited
from node_agent.jobs.processes import stat_fields
from node_agent.jobs.verdict import Verdict

OLDEST = (4, 2)
"""The oldest version that is used. 3.17, which Debian 12 has, fails on kernels of today."""
_CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_CHECKPOINT_RESTORE": 40}
"""One of these is needed, by their bits."""
_CHECK_LIMIT = 20.0
_ABOUT = "ebb.json"
"""Names the root of the tree. It is written last, so a dump without it is not complete."""


class Outcome(NamedTuple):
    verdict: Verdict
    seconds: float
    pid: int | None = None
    """The root of the tree, if it runs."""
    why: str = ""
    """Why it was refused, or is lost."""


class Criu:
    def __init__(self, program: str = "criu") -> None:
        self._program = program

    async def unusable(self) -> str:
        """Why this machine cannot dump or restore, and what to do; empty if it can."""
        version = await run_limited([self._program, "--version"], _CHECK_LIMIT)
        if version.status != 0:
            return f"CRIU is not installed ({version.output}): install CRIU 4.2 or later"
        if (found := _version(version.output)) is None or found < OLDEST:
            said = version.output.splitlines()[0] if version.output else "nothing"
            return f"CRIU is too old ({said}): install CRIU 4.2 or later"
        if not any(_effective() >> bit & 1 for bit in _CAPABILITIES.values()):
            return f"the agent may not use CRIU: run it as root, or with one of {', '.join(_CAPABILITIES)}"
        check = await run_limited([self._program, "check"], _CHECK_LIMIT)
        return "" if check.status == 0 else f"CRIU does not work on this kernel: {_last_line(check.output)}"

    async def dump(self, pid: int, images: Path, *, limit_seconds: float) -> Outcome:
        """Writes the tree below `pid` into `images`, an empty or new folder, and ends it. If refused, the tree runs on."""
        began = time.monotonic()
        if why := _against_dump(pid, images):
            return Outcome(Verdict.REFUSED, 0.0, pid, why)
        images.mkdir(mode=0o700, parents=True, exist_ok=True)
        ended = await self._run("dump", images, limit_seconds, "--tree", str(pid), "--file-locks")
        took = time.monotonic() - began
        if ended.status != 0:
            # CRIU lets the tree run on when it fails. When it was killed, parts of it may be stopped for good.
            verdict = Verdict.LOST if ended.status is None or not _runs(pid) else Verdict.REFUSED
            return Outcome(verdict, took, pid if _runs(pid) else None, _why("dump", images, ended))
        _write_about(images, pid)
        return Outcome(Verdict.DONE, took)

    async def restore(self, images: Path, *, limit_seconds: float) -> Outcome:
        """Makes a dumped tree run again. If refused, nothing of it runs, and the images can be tried again."""
        began = time.monotonic()
        try:
            pid = int(json.loads((images / _ABOUT).read_text())["pid"])
        except (OSError, ValueError, KeyError) as error:
            return Outcome(Verdict.REFUSED, 0.0, None, f"{images} has no complete dump: {error}")
        if _runs(pid):
            return Outcome(
                Verdict.REFUSED, 0.0, None, f"process {pid} of the dump cannot be restored: another process has its pid"
            )
        pidfile = images / "restored.pid"
        pidfile.unlink(missing_ok=True)
        ended = await self._run("restore", images, limit_seconds, "--restore-detached", "--pidfile", str(pidfile))
        took = time.monotonic() - began
        with suppress(OSError, ValueError):
            pid = int(pidfile.read_text())
        if ended.status == 0 and _runs(pid):
            return Outcome(Verdict.DONE, took, pid)
        # CRIU ends what it has begun to restore when it fails.
        lost = ended.status is None or ended.status == 0
        return Outcome(
            Verdict.LOST if lost else Verdict.REFUSED, took, pid if _runs(pid) else None, _why("restore", images, ended)
        )

    async def _run(self, action: str, images: Path, limit_seconds: float, *more: str) -> Ended:
        log = ("--log-file", f"{action}.log", "-v2")
        return await run_limited([self._program, action, "--images-dir", str(images), *log, *more], limit_seconds)


def _against_dump(pid: int, images: Path) -> str:
    if not _runs(pid):
        return f"there is no process {pid}"
    if images.exists() and any(images.iterdir()):
        return f"{images} is not empty"
    return ""


def _write_about(images: Path, pid: int) -> None:
    new = images / f"{_ABOUT}.new"
    new.write_text(json.dumps({"pid": pid}))
    new.replace(images / _ABOUT)


def _why(action: str, images: Path, ended: Ended) -> str:
    """The last error in CRIU's log, which says more than its exit status."""
    with suppress(OSError):
        errors = [line for line in (images / f"{action}.log").read_text(errors="replace").splitlines() if "Error" in line]
        if errors and ended.status is not None:
            return f"criu {action}: {errors[-1].strip()}"
    status = "" if ended.status is None else f" exited with {ended.status}"
    return f"criu {action}{status}: {_last_line(ended.output)}"


def _last_line(output: str) -> str:
    return output.splitlines()[-1] if output else "it says nothing"


def _version(output: str) -> tuple[int, int] | None:
    found = re.search(r"Version:\s*(\d+)\.(\d+)", output)
    return None if found is None else (int(found[1]), int(found[2]))


def _effective() -> int:
    """The effective capabilities of this process, as bits."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return 0 if found is None else int(found[1], 16)


def _runs(pid: int) -> bool:
    """Whether there is such a process, and it has not exited."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"
