"""Dumps a run by CRIU into the checkpoint folder of its job, and ends the run. The launcher executes this on behalf of an agent
while a run that does not save its work itself is being stopped.

    python -I -S criu_dump.py <request>      {"criu", "pid", "images", "about", "yield_file", "folder"}, as JSON

Executed by the launcher, it outlives the agent, and its exit status tells the result. In this order: the images are written
next to the earlier ones, with `about` last; they replace the earlier ones; the run is marked as saved (`yield_file`); the
dumped processes, which CRIU has left stopped, are killed. If this program is killed in between, the run continues or is
stopped, and the agent kills it when its grace period has ended. `folder` gets one line for people (`said`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

if __name__ == "__main__":  # executed by its path, and isolated, it finds only the standard library
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))  # noqa: PTH100, PTH118, PTH120

from node_agent.processes import job_files
from node_agent.processes.process_groups import pids, stat_fields

SAID_FILE = "said"
ABOUT_FILE = "ebb.json"
"""Describes the dump. Written last, so a folder without it has no complete dump."""
NEW, OLD = ".new", ".old"
"""Suffixes of the folder: of a dump that is being written, and of one that is being replaced."""
_MIB = 1 << 20
_HARMLESS = "rlimit: "
"""Prefix of an error after which CRIU continues: it may not open more files than the launcher."""
_LOG_LIMIT = 1 << 24
"""Bytes of CRIU's log that are read."""
_GHOST_LIMIT = "1G"
"""Maximum size of a file that no longer has a name, such as memory that workers of PyTorch's DataLoader share."""


def tree(root: int) -> list[int]:
    """Return a process and all its descendants. They are stopped, so that no others are made meanwhile."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        fields = stat_fields(pid)
        if len(fields) > 1 and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def first_error(log: str, output: str) -> str:
    """Return the first error in CRIU's log: the later ones follow from it."""
    written = job_files.read_file(*os.path.split(log), _LOG_LIMIT).text
    errors = (line.partition("): ")[2] for line in written.splitlines() if "Error (" in line)
    if error := next((error for error in errors if not error.startswith(_HARMLESS)), ""):
        return error.strip().rstrip(".")
    lines = output.strip().splitlines()
    return lines[-1] if lines else "it says nothing"


def sync(folder: str) -> int:
    """Write the files of a folder to the disk, readable by their owner only; return how many bytes."""
    size = 0
    for name in (*os.listdir(folder), "."):  # noqa: PTH208
        path = f"{folder}/{name}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if name != ".":
                os.fchmod(descriptor, 0o600)
                size += os.fstat(descriptor).st_size
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return size


def dump(request: dict[str, object]) -> tuple[bool, str]:
    """Dump the run; return whether that succeeded, and a sentence about it."""
    began = time.monotonic()
    images, pid = str(request["images"]), int(str(request["pid"]))
    new = images + NEW
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new, mode=0o700)  # noqa: PTH103
    log = f"{request['folder']}/dump.log"
    argv = [
        *(str(request["criu"]), "dump", "--tree", str(pid), "--images-dir", new, "--leave-stopped", "--file-locks"),
        *("--manage-cgroups=ignore", "--cpu-cap=cpu", f"--ghost-limit={_GHOST_LIMIT}", "--log-file", log, "-v2"),
    ]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        why = first_error(log, done.stdout.decode(errors="replace"))
        shutil.rmtree(new, ignore_errors=True)
        return False, f"CRIU could not save it ({why})"
    dumped = tree(pid)
    about = {**request["about"], "pid": pid, "pids": dumped}  # type: ignore[dict-item]
    size = sync(new)
    job_files.write_file(new, ABOUT_FILE, json.dumps({**about, "bytes": size}).encode(), 0o600)
    sync(new)
    shutil.rmtree(images + OLD, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(images, images + OLD)  # noqa: PTH104
    os.rename(new, images)  # noqa: PTH104
    shutil.rmtree(images + OLD, ignore_errors=True)
    said = f"CRIU saved its memory ({-(-size // _MIB)} MiB) in {time.monotonic() - began:.1f} s"
    say(request, said)
    job_files.touch_file(*os.path.split(str(request["yield_file"])))
    for each in reversed(dumped):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    return True, said


def say(request: dict[str, object], text: str) -> None:
    with contextlib.suppress(OSError):
        job_files.write_file(str(request["folder"]), SAID_FILE, text.encode(errors="replace"))


def main(request: dict[str, object]) -> int:
    try:
        done, said = dump(request)
    except OSError as error:
        for pid in tree(int(str(request["pid"]))):  # CRIU may have left it stopped
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        done, said = False, f"CRIU could not save it ({error})"
    if not done:
        say(request, said)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
