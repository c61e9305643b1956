"""Runs a program of this machine to its end, for a limited time."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple


class Ended(NamedTuple):
    status: int | None
    """Its exit status, negative for a signal; None: it could not be started, or had not exited within the limit."""
    output: str
    """Its standard output and error, or why it has no status."""


async def run_limited(
    command: Sequence[str],
    limit_seconds: float,
    *,
    given: str = "",
    environment: Mapping[str, str] | None = None,
    uid: int | None = None,
    gid: int | None = None,
) -> Ended:
    """Runs a command in a session of its own, with `given` as its standard input, as another user if `uid` names one.

    Whatever of it still runs when the limit is over is killed. A daemon that it leaves behind must have a session of its own,
    and must not keep its standard output.
    """
    other = uid is not None and uid != os.geteuid()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            user=uid if other else None,
            group=gid if other else None,
            extra_groups=[] if other else None,
        )
    except OSError as error:
        return Ended(None, f"{command[0]} cannot be started: {error}")
    try:
        async with asyncio.timeout(limit_seconds):
            output, _ = await process.communicate(given.encode())
        return Ended(process.returncode, output.decode(errors="replace").strip())
    except TimeoutError:
        return Ended(None, f"{command[0]} has not exited within {limit_seconds:g} s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
