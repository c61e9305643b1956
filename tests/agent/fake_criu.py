"""criu as far as the agent uses it, for machines on which the real one does not work. Run it by a script named criu.

"Dumps" the command of one process and leaves it stopped; "restores" it by starting the command again, as a sibling of itself.
What goes wrong is in the file named by EBB_FAKE_CRIU: {"version": text, "fail": {action: message}, "hang": [action], "lives":
false, for a process that exits with 9 at once}.
"""

import argparse
import ctypes
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any

_CLONE3, _CLONE_PARENT = 435, 0x8000
_FLAGS = (
    *("--file-locks", "--restore-detached", "--restore-sibling", "--leave-stopped", "-v2"),
    *("--manage-cgroups=ignore", "--cpu-cap=cpu", "--ghost-limit=1G"),
)


def main() -> int:
    plan: dict[str, Any] = json.loads(Path(os.environ["EBB_FAKE_CRIU"]).read_text())
    if "--version" in sys.argv:
        sys.stdout.write(plan.get("version", "Version: 4.2\nGitID: fake") + "\n")
        return 0
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("action", choices=["check", "dump", "restore"])
    for name in ("--images-dir", "--work-dir", "--log-file", "--pidfile"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--tree", type=int)
    parser.add_argument("--inherit-fd")
    given = parser.parse_args([word for word in sys.argv[1:] if word not in _FLAGS])
    work = given.work_dir or given.images_dir
    while given.action in plan.get("hang", []):
        signal.pause()
    if why := plan.get("fail", {}).get(given.action):
        if work is not None:
            said = "Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
            said += f"Error (criu/fake.c:1): {why}\nError (criu/cr-dump.c:2128): Dumping FAILED.\n"
            (work / given.log_file).write_text(said)
        sys.stderr.write(why + "\n")
        return 1
    if given.action == "dump":
        assert "--leave-stopped" in sys.argv
        _dump(given.tree, given.images_dir)
    elif given.action == "restore":
        assert "--restore-sibling" in sys.argv
        _restore(given.images_dir, work / given.pidfile, given.inherit_fd, plan.get("lives", True))
    return 0


def _dump(pid: int, images: Path) -> None:
    of = Path(f"/proc/{pid}")
    command, variables = ((of / name).read_text().rstrip("\0").split("\0") for name in ("cmdline", "environ"))
    log = str((of / "fd/1").readlink())
    saved = {"command": command, "env": variables, "cwd": str((of / "cwd").readlink()), "log": log}
    (images / "core.img").write_text(json.dumps(saved))
    os.kill(pid, signal.SIGSTOP)


def _restore(images: Path, pidfile: Path, inherited: str, lives: bool) -> None:
    saved = json.loads((images / "core.img").read_text())
    assert inherited == f"fd[1]:{saved['log'].lstrip('/')}", "a descriptor that is not given would be opened by its path"
    arguments = struct.pack("8Q", _CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0)
    pid = ctypes.PyDLL(None, use_errno=True).syscall(_CLONE3, arguments, len(arguments))
    if pid:
        assert pid > 0
        pidfile.write_text(str(pid))
        return
    try:
        os.setsid()
        os.dup2(1, 2)
        os.chdir(saved["cwd"])
        command = saved["command"] if lives else ["/bin/sh", "-c", "exit 9"]
        os.execve(command[0], command, dict(text.split("=", 1) for text in saved["env"]))
    finally:
        os._exit(127)


if __name__ == "__main__":
    sys.exit(main())
