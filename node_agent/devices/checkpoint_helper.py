"""The process that asks NVIDIA's driver to lock, checkpoint, restore and unlock other processes.

One long-lived process with an initialized driver, because starting one for each action takes seconds. A call may hang in the
driver: the agent then ends this process and starts another. A line of JSON is a request or an answer. The process exits when
its standard input is closed.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

Uuid = str


class CheckpointDriver(Protocol):
    """The calls of `cuda.core.checkpoint.Process`. Every call may raise; then `state` tells the state of the process."""

    def state(self, pid: int) -> str:
        """Return running, locked, checkpointed or failed."""

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Wait until no CUDA call is in progress, and let none begin. The process must be running."""

    def checkpoint(self, pid: int) -> None:
        """Copy the device memory to the host and release it. The process must be locked."""

    def restore(self, pid: int, gpu_pairs: Mapping[Uuid, Uuid]) -> None:
        """Restore a checkpointed process, which is then locked. `gpu_pairs` maps all GPUs of the machine, or is empty."""

    def unlock(self, pid: int) -> None:
        """Unlock a locked process, which then runs."""


class Unusable(Exception):
    """This machine has no driver checkpoint: the message says why, and what to do."""


class CudaDriver:
    """The driver of this machine, through cuda-core. Raises `Unusable`."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver  # type: ignore[import-not-found, unused-ignore]
            from cuda.core import checkpoint  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise Unusable(f"cuda-core is not installed ({error}): pip install 'cuda-core[cu13]>=1.0'") from error
        try:
            (code,) = driver.cuInit(0)
        except RuntimeError as error:  # without a driver, the bindings raise instead
            raise Unusable(f"the driver cannot be used: {error}") from error
        if int(code):
            raise Unusable(f"the driver cannot be used: cuInit answers {code.name}")
        self._process = checkpoint.Process

    def state(self, pid: int) -> str:
        return str(self._process(pid).state)

    def lock(self, pid: int, timeout_ms: int) -> None:
        self._process(pid).lock(timeout_ms)

    def checkpoint(self, pid: int) -> None:
        self._process(pid).checkpoint()

    def restore(self, pid: int, gpu_pairs: Mapping[Uuid, Uuid]) -> None:
        bare = {_bare(old): _bare(new) for old, new in gpu_pairs.items()}
        self._process(pid).restore(bare or None)

    def unlock(self, pid: int) -> None:
        self._process(pid).unlock()


def serve(driver: CheckpointDriver, requests: TextIO, answers: TextIO) -> None:
    """Answer every request with {state, error}, until the last one. A state of null is not known."""
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        call, pid = request.pop("call"), request.pop("pid")
        error, state = "", None
        try:
            if call != "state":
                getattr(driver, call)(pid, **request)
        except Exception as failed:  # whatever the driver raises is the answer
            error = f"{call} of process {pid}: {failed}"
        try:
            state = driver.state(pid)
        except Exception as failed:
            error = error or f"the state of process {pid} cannot be read: {failed}"
        _answer(answers, {"state": state, "error": error})


def _answer(answers: TextIO, message: Mapping[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _bare(uuid: Uuid) -> str:
    """Strip the prefix: NVML writes GPU-<uuid>, the driver's bindings read <uuid>."""
    return uuid.removeprefix("GPU-")


def answer_agent(driver: CheckpointDriver | None, unusable: str = "") -> None:
    """Say whether there is a driver, and answer the agent's requests over standard input and output."""
    try:
        _answer(sys.stdout, {"unusable": unusable})
        if driver is not None:
            serve(driver, sys.stdin, sys.stdout)
    except BrokenPipeError:
        # The agent was killed. Its last request is done, and the next agent asks the driver for the state.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes what is left when it exits


def main() -> None:
    try:
        driver = CudaDriver()
    except Unusable as error:
        answer_agent(None, str(error))
    else:
        answer_agent(driver)


if __name__ == "__main__":
    main()
