"""criu as far as the agent uses it, for machines on which the real one does not work. Run it by a script named criu.

"Dumps" the command of one process and ends that process; "restores" it by starting the command again. What goes wrong is in the
file named by EBB_FAKE_CRIU: {"version": text, "fail": {action: message}, "hang": [action]}.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    plan: dict[str, Any] = json.loads(Path(os.environ["EBB_FAKE_CRIU"]).read_text())
    if "--version" in sys.argv:
        sys.stdout.write(plan.get("version", "Version: 4.2\nGitID: fake") + "\n")
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["check", "dump", "restore"])
    for name in ("--images-dir", "--log-file", "--pidfile"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--tree", type=int)
    parser.add_argument("--file-locks", action="store_true")
    parser.add_argument("--restore-detached", action="store_true")
    parser.add_argument("-v2", action="store_true")
    given = parser.parse_args()
    while given.action in plan.get("hang", []):
        signal.pause()
    if why := plan.get("fail", {}).get(given.action):
        if given.images_dir is not None:
            (given.images_dir / given.log_file).write_text(f"(00.01) Error (criu/fake.c:1): {why}\n(00.02) the end\n")
        sys.stderr.write(why + "\n")
        return 1
    if given.action == "dump":
        _dump(given.tree, given.images_dir)
    elif given.action == "restore":
        _restore(given.images_dir, given.pidfile)
    return 0


def _dump(pid: int, images: Path) -> None:
    command = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    (images / "core.img").write_text(json.dumps(command))
    os.kill(pid, signal.SIGKILL)


def _restore(images: Path, pidfile: Path) -> None:
    command = json.loads((images / "core.img").read_text())
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    pidfile.write_text(str(process.pid))
    process.returncode = 0  # it is nobody's child from now on


if __name__ == "__main__":
    sys.exit(main())
