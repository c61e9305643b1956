"""One launch, as the launcher carries it out: the process, its files, and which part is at fault if it fails."""

from __future__ import annotations

import contextlib
import errno
import json
import os

from node_agent.processes import job_files
from node_agent.processes.launcher.cgroup_spawn import IGNORED, Misplaced, Streams, spawn_inside
from node_agent.processes.process_groups import SCARCE

PROCESS_FILE = "process.json"
EXIT_FILE = "exit.json"
LOG_FILE = "output.log"
STOP_FILE = "stop.json"
"""File that tells a run why it must stop; written before the signal."""
YIELD_FILE = "yielded"
"""File by which a run says that it saved its work and exits because it was told to."""
SAVERS_FILE = "savers"
"""File to which each saving process of a run adds a line with its pid."""
_SAVERS_LIMIT = 1 << 16
"""Maximum bytes: thousands of processes."""

_NODES_FAULT = SCARCE | {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT, errno.EFBIG}


def spawn_found(argv: list[str], environment: dict[str, str], streams: Streams, group: str) -> tuple[int, str]:
    """Spawn the command, which is searched for as execvpe would, in a session of its own; return its pid and its file.

    Costs half of what the subprocess module does. Raises OSError with the command as its file name, or without a file name if
    no command could be executed now.
    """
    command, number = argv[0], 0
    found = [command]
    if "/" not in command:
        found = [f"{folder or '.'}/{command}" for folder in environment.get("PATH", os.defpath).split(":")]
    for path in found:
        try:
            if len(found) > 1:
                os.stat(path)  # noqa: PTH116 (pathlib is not loaded here; a spawn that fails costs much more)
            if group:
                return spawn_inside(group, path, argv, environment, streams), path
            return os.posix_spawn(path, argv, environment, file_actions=streams, setsid=True, setsigdef=IGNORED), path
        except Misplaced as error:
            raise OSError(error.number, f"{os.strerror(error.number)} (control group {group})") from error
        except OSError as error:
            if error.errno == errno.EBADF:  # what the C library says of streams that are above the limit for descriptors
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
            if number in (0, errno.ENOENT, errno.ENOTDIR):  # any other says more
                number = error.errno or errno.EIO
    raise OSError(number, os.strerror(number), command)


def savers_of(directory: str) -> set[int]:
    """Return the processes of a run that have said that they save, and that they end their own children."""
    try:
        return {int(line) for line in (job_files.read_file(directory, SAVERS_FILE, _SAVERS_LIMIT).data or b"").split()}
    except ValueError:
        return set()


def may_save(directory: str, rest: list[int]) -> bool:
    """Whether what is left of a run without its leader may be saving its work: the run was told to stop, and has not said that
    it saved, or some of its savers remain."""
    if not job_files.has_file(directory, STOP_FILE):
        return False
    saved = job_files.has_file(directory, YIELD_FILE)
    return not (saved and savers_of(directory).isdisjoint(rest))


def write_json(descriptor: int, content: dict[str, object]) -> bool:
    """Replace the file's content; return whether that succeeded."""
    data = json.dumps(content).encode()
    try:
        if os.write(descriptor, data) != len(data):
            return False
        if os.fstat(descriptor).st_size > len(data):
            os.ftruncate(descriptor, len(data))
        return True
    except OSError:
        return False


def write_exit(directory: str, content: dict[str, object]) -> bool:
    """Write the exit file, whole or not at all; return False if that should be tried again."""
    with contextlib.suppress(OSError):  # if the job has removed one or made the other, a new file is written
        mark = job_files.open_own(directory, PROCESS_FILE)
        try:
            if write_json(mark, content):
                os.link(f"{directory}/{PROCESS_FILE}", f"{directory}/{EXIT_FILE}")
                return True
        finally:
            os.close(mark)
    try:
        job_files.write_file(directory, EXIT_FILE, json.dumps(content).encode())
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR)  # the run's directory was removed, so the file is not needed
    return True


def fault_in_request(error: Exception, request: dict[str, object]) -> str:
    """Return which part of the request could not be executed, and why; empty if this node is at fault.

    An error with a file name comes from the child: from entering its working directory, or from executing the command.
    """
    if not isinstance(error, OSError):
        return str(error)
    own = request["dir"], f"{request['dir']}/{LOG_FILE}"
    if error.filename is None or error.errno in _NODES_FAULT or error.filename in own:
        return ""
    what = "working directory" if error.filename == request["cwd"] else "command"
    return f"{what} {error.filename}: {error.strerror}"


def describe(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{error.filename}: {reason}" if isinstance(error, OSError) and error.filename else str(reason)
