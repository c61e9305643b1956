"""The lock of a node: one agent for each scheduler's address and node name on a machine, whatever its state directory is.

The lock is an abstract Unix socket: it has no file that could be lost or left behind, all users of the machine share its name,
and the kernel releases it when the agent's process ends, however that ends. A container with a network of its own does not
see it.
"""

import asyncio
import contextlib
import errno
import hashlib
import socket
import struct
import time
from collections.abc import AsyncIterator

from node_agent.errors import NodeInUse

_WAIT = 5.0
"""Seconds to wait for an agent that is just ending."""
_AGAIN = 0.05
_ASKERS = 4096
"""How often others may ask who holds a lock: nobody accepts their connections."""
_CREDENTIALS = struct.Struct("3i")


def node_keys(scheduler: str, node: str) -> tuple[str, ...]:
    """Return the names of the locks of a node, one for each address of the scheduler."""
    texts = {f"{address.strip().lower()}\n{node}" for address in scheduler.split(",")}
    return tuple(sorted(hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts))


@contextlib.asynccontextmanager
async def lock_node(scheduler: str, node: str, wait: float = _WAIT) -> AsyncIterator[None]:
    """Hold the locks of a node. Raises NodeInUse if another agent still has one of them after `wait` seconds."""
    end = time.monotonic() + wait
    with contextlib.ExitStack() as held:
        for key in node_keys(scheduler, node):
            while (lock := _try_lock(key)) is None:
                if time.monotonic() >= end:
                    raise NodeInUse(node=node, scheduler=scheduler, pid=_find_holder(key) or "unknown")
                await asyncio.sleep(_AGAIN)
            held.enter_context(lock)
        yield


def _address(key: str) -> str:
    return f"\0ebb-agent/{key}"


def _try_lock(key: str) -> socket.socket | None:
    """Return the socket that is the lock; None if another process has it."""
    lock = socket.socket(socket.AF_UNIX)  # closed in every program that this one executes
    try:
        lock.bind(_address(key))
        lock.listen(_ASKERS)
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return lock


def _find_holder(key: str) -> int:
    """Return the pid of the process that has a lock; 0 if that cannot be known."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        asking.connect(_address(key))
        pid: int = _CREDENTIALS.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
        return pid
    return 0
