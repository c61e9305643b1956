"""Makes processes that are in a control group from their first instruction. Python's posix_spawn cannot.

The C library's can, from glibc 2.39 on, at the same cost. A fork can do the same, but costs the launcher about as much again
as the rest of a launch: its memory has to be copied, where posix_spawn only lends it. So the fork is for older libraries, and
for failures, since it can say which part failed.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import struct
from collections.abc import Callable, Iterable

TYPE_CHECKING = False  # as typing has it, which is not loaded here
if TYPE_CHECKING:
    import ctypes

IGNORED = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that the launcher ignores, and jobs should not."""

_SETSIGDEF, _SETSID, _SETCGROUP = 0x04, 0x80, 0x100
"""Flags of posix_spawn, as glibc has them."""
_ROOM = 1024
"""Bytes; more than any of posix_spawn's structures has."""
_CLONE3 = 435
"""The number of the system call on every architecture that this runs on."""
_CLONE_INTO_CGROUP = 0x200000000
_REFUSED = (errno.ENOSYS, errno.EPERM, errno.E2BIG)
"""An older kernel has no such call, and the filter of a container may forbid it."""

Streams = list[tuple[int, int, int]]
"""Streams as posix_spawn wants them: (POSIX_SPAWN_DUP2, descriptor, its number in the child)."""


class Misplaced(Exception):
    """No process could be made in the control group."""

    def __init__(self, number: int) -> None:
        self.number = number


def spawn_inside(group: str, path: str, argv: list[str], environment: dict[str, str], streams: Streams) -> int:
    """posix_spawn into a control group and a new session; return the pid. Raises Misplaced, and what posix_spawn does."""
    try:
        directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Misplaced(error.errno or errno.EIO) from error
    try:
        pid = spawn_by_library(directory, path, argv, environment, streams)
        return pid or spawn_by_fork(directory, group, path, argv, environment, streams)
    finally:
        os.close(directory)


# Through the C library.


@functools.cache
def _library() -> ctypes.PyDLL | None:
    import ctypes  # a megabyte, for launchers that need it

    library = ctypes.PyDLL(None)
    return library if hasattr(library, "posix_spawnattr_setcgroup_np") else None


def spawn_by_library(group: int, path: str, argv: list[str], environment: dict[str, str], streams: Streams) -> int:
    """Return the pid; 0 if the library cannot do it, or if something went wrong, which the fork then reports."""
    library = _library()
    if library is None or any("=" in name or not name for name in environment):
        return 0
    import ctypes

    pid, actions = ctypes.c_int(), ctypes.create_string_buffer(_ROOM)
    attributes, signals = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)

    def strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
        data = [os.fsencode(text) for text in texts]
        return (ctypes.c_char_p * (len(data) + 1))(*data, None)

    library.posix_spawnattr_init(attributes)
    library.posix_spawn_file_actions_init(actions)
    try:
        library.sigemptyset(signals)
        for number in IGNORED:
            library.sigaddset(signals, int(number))
        failures = [
            library.posix_spawnattr_setsigdefault(attributes, signals),
            library.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSID | _SETCGROUP)),
            library.posix_spawnattr_setcgroup_np(attributes, group),
            *(library.posix_spawn_file_actions_adddup2(actions, given, stream) for _, given, stream in streams),
        ]
        variables = (f"{name}={value}" for name, value in environment.items())
        if any("\0" in text for text in (path, *argv, *environment, *environment.values())) or any(failures):
            return 0
        command = os.fsencode(path), actions, attributes, strings(argv), strings(variables)
        return 0 if library.posix_spawn(ctypes.byref(pid), *command) else pid.value
    finally:
        library.posix_spawn_file_actions_destroy(actions)
        library.posix_spawnattr_destroy(attributes)


# Through a fork.


def spawn_by_fork(group: int, folder: str, path: str, argv: list[str], environment: dict[str, str], streams: Streams) -> int:
    """Fork and execute. A child that fails says so over a pipe, which its exec closes."""
    try:
        hear, tell = os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        raise Misplaced(error.errno or errno.EIO) from error
    try:
        pid, inside = clone(group)
        if pid == 0:
            become(tell, "" if inside else folder, path, argv, environment, streams)
        os.close(tell)
        tell = -1
        kind, _, why = os.read(hear, 512).decode(errors="replace").partition(" ")
    finally:
        os.close(hear)
        if tell >= 0:
            os.close(tell)
    if kind:
        os.waitpid(pid, 0)
    if kind == "value":
        raise ValueError(why)
    if kind == "group":
        raise Misplaced(int(why))
    if kind == "exec":
        raise OSError(int(why), os.strerror(int(why)), path)
    return pid


def clone(group: int) -> tuple[int, bool]:
    """Fork; return the pid, and whether the child is in the control group already.

    A child that is born there costs no more than a fork. Moving it there takes the kernel a grace period of RCU: 5 to 20 ms on
    an otherwise idle machine. This program has one thread, and its child only calls the kernel.
    """
    arguments = struct.pack("11Q", _CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, group)
    pid, number = _system_call()(_CLONE3, arguments, len(arguments))
    if pid >= 0:
        return pid, True
    if number not in _REFUSED:
        raise Misplaced(number)
    return os.fork(), False


@functools.cache
def _system_call() -> Callable[..., tuple[int, int]]:
    """Return a function that makes a system call and returns its result and errno. It keeps the GIL, as a child must."""
    import ctypes  # a megabyte, for launchers that need it

    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return lambda *arguments: (call(*arguments), ctypes.get_errno())


def become(tell: int, group: str, path: str, argv: list[str], environment: dict[str, str], streams: Streams) -> None:
    """Do the child's part. Does not return."""
    kind = "group"
    try:
        if group:
            with open(f"{group}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write("0")
        kind = "exec"
        os.setsid()
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        for _, given, stream in streams:
            os.dup2(given, stream)
        os.execve(path, argv, environment)
    except OSError as error:
        os.write(tell, f"{kind} {error.errno}".encode())
    except BaseException as error:  # such as a name that no variable can have
        os.write(tell, f"value {error}".encode(errors="replace"))
    finally:
        os._exit(127)
