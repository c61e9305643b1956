"""Runs a program of this machine to its end, within a time limit."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from node_agent.processes.blocking_calls import call_in_own_thread


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
    """Run a command in a session of its own, with `given` as its standard input, as another user if `uid` names one.

    Whatever of it still runs at the time limit is killed. A daemon that it leaves behind must have a session of its own, and
    must not keep its standard output.

    A thread waits for it. The agent's event loop, uvloop, would leave descriptors open in the daemon, and then wait for
    its end; and it cannot change the user.
    """
    other = uid is not None and uid != os.geteuid()
    begun: list[subprocess.Popen[bytes]] = []

    def run() -> Ended:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                user=uid if other else None,
                group=gid if other else None,
                extra_groups=[] if other else None,
            )
        except OSError as error:
            return Ended(None, f"{command[0]} cannot be started: {error}")
        begun.append(process)
        with process:
            try:
                output, _ = process.communicate(given.encode(), limit_seconds)
            except subprocess.TimeoutExpired:
                _kill(process)
                return Ended(None, f"{command[0]} has not exited within {limit_seconds:g} s")
            return Ended(process.returncode, output.decode(errors="replace").strip())

    try:
        return await call_in_own_thread(run)
    except asyncio.CancelledError:
        for process in begun:
            _kill(process)
        raise


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
