"""Checkpoints that a framework writes in its own format, with the rules of a Checkpointer."""

import hashlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from client_sdk.training._gang.ranks import ranks_of
from client_sdk.training._run.run_files import RunFiles, reason_of
from client_sdk.training._storing import folders
from client_sdk.training._storing.files import CheckpointError
from client_sdk.training._storing.folders import MANIFEST, Reference
from client_sdk.training._storing.periodic_saves import OnSaveError, check_on_save_error, is_survived
from client_sdk.training.checkpoint import Checkpointer

_log = logging.getLogger("client_sdk.training")


class FrameworkCheckpoints:
    """The checkpoints of this job, each a folder that the framework writes, and its end when a stop is asked for."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        environment: Mapping[str, str] | None = None,
        on_save_error: OnSaveError = "warn",
    ) -> None:
        environment = os.environ if environment is None else environment
        check_on_save_error(on_save_error)
        self._on_save_error: OnSaveError = on_save_error
        self._checkpointer = Checkpointer(directory, every_steps=1, environment=environment, on_save_error=on_save_error)
        self._world = "" if ranks_of(environment, None) is None else environment["WORLD_SIZE"]
        self._entered = False
        self._files = RunFiles.from_environment(environment)
        self.directory = self._checkpointer.directory
        """The directory in which the framework writes."""

    def newest(self) -> Path | None:
        """Return the newest intact folder; None on a first run. From then on, SIGTERM asks for a stop.

        Call it in the main thread.
        Raises CheckpointError if checkpoints exist but none can be used.
        """
        self.listen()
        with folders.opening(lambda reference: folders.check(self.directory, reference)[0]):
            found: Path | None = self._checkpointer.load()
        if found is not None:
            self._files.say_loaded(found.name)
        return found

    def listen(self) -> None:
        """Takes SIGTERM over. Called again, it takes the signal back from a framework that has taken it meanwhile."""
        if not self._entered:
            self._entered = True
            self._checkpointer.__enter__()
            self._handler = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._handler)

    def is_stop_due(self) -> bool:
        """Whether a stop is asked for; in a process group of torch, whether it is on any rank. Call it after each step."""
        if found := self._holds_on_any_rank(self._checkpointer.stop_requested):
            self._checkpointer.request_stop()
        return found

    def _holds_on_any_rank(self, here: bool) -> bool:
        """Whether something is so on any rank. All ranks ask together."""
        if (group := self._process_group()) is None:
            return here
        import torch

        device = "cuda" if group.get_backend() == "nccl" else "cpu"
        flag = torch.tensor([int(here)], device=device)
        group.all_reduce(flag, op=group.ReduceOp.MAX)
        return bool(flag.item())

    def handle_failure(self, error: Exception | None, folder: Path) -> bool:
        """Whether the framework could not write the folder, on any rank: then the training continues without it, and what was
        written of it is removed, or the next try would find even less room. Call it on each rank after a save, with what the
        save raised. At a stop, and if no later save could succeed, it raises the error, and CheckpointError on the other
        ranks."""
        if error is not None:
            self._files.say_not_saved(error)
        if not self._holds_on_any_rank(error is not None):
            return False
        ends = self._checkpointer.stop_requested or (error is not None and not is_survived(error, self._on_save_error))
        if self._holds_on_any_rank(ends):
            raise error or CheckpointError("another rank could not write the checkpoint")
        if error is not None:
            _log.warning("the checkpoint could not be written: %s. The training goes on and tries again", reason_of(error))
        group = self._process_group()
        if group is None or group.get_rank() == 0:
            folders.remove_unsealed(folder)
        return True

    def finish_save(self, folder: Path, step: int) -> bool:
        """Call it on each rank when the framework has written a folder. Stops the program if that was asked for.

        Returns whether the folder is a checkpoint: if its manifest cannot be written, the save has failed. Raises what
        `handle_failure` raises, and SystemExit(OBEYED) at a stop.
        """
        group, error = self._process_group(), None
        if group is not None:
            group.barrier()  # the files of all ranks are there
        if group is None or group.get_rank() == 0:
            try:
                reference = folders.seal_existing(folder, {"step": step})
            except OSError as raised:
                error = raised
        if self.handle_failure(error, folder):
            return False
        if group is not None:
            text = (folder / MANIFEST).read_bytes()
            reference = Reference(folder.name, hashlib.blake2b(text, digest_size=32).hexdigest())
        self._checkpointer.at_boundary(lambda: reference)
        return True

    def clear(self, name: str) -> None:
        """Removes the folders of this name that no checkpoint refers to."""
        group = self._process_group()
        if group is None or group.get_rank() == 0:
            folders.clear(self.directory, name, None, "checkpoint")

    def finish(self) -> None:
        """Says that the work is complete."""
        if self._entered:
            self._entered = False
            self._checkpointer.__exit__(None, None, None)

    def _process_group(self) -> Any:
        """`torch.distributed` if this process is one of several ranks, otherwise None.

        Raises RuntimeError if the environment names several ranks, and the framework does not train with them.
        """
        if not self._world:
            return None
        group = sys.modules.get("torch.distributed")
        if group is None or not group.is_available() or not group.is_initialized():
            raise RuntimeError(
                f"WORLD_SIZE={self._world}, but the framework has no process group, so each rank trains alone: have it use all "
                'ranks, such as by Trainer(strategy="ddp", devices=...) in Lightning'
            )
        return group
