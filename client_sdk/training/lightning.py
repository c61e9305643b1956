"""For Lightning: a callback that saves and stops when the job is preempted, and resumes in the middle of an epoch.

from client_sdk.training.lightning import EbbCallback

ebb = EbbCallback(every_steps=1000)
trainer = Trainer(callbacks=[ebb], ...)
trainer.fit(model, ebb.resumable(loader), ckpt_path=ebb.newest())
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer

from client_sdk.training._data.resumable import ResumableLoader
from client_sdk.training._framework import FrameworkCheckpoints
from client_sdk.training._storing.folders import folder_name
from client_sdk.training._storing.periodic_saves import OnSaveError, pause_after
from client_sdk.training.step_counter import steps

T = TypeVar("T")
_NAME = "lightning"


class EbbCallback(Callback):
    """Saves Lightning's own checkpoint after a batch, when a stop is requested and every `every_steps` batches.

    `directory` is EBB_CHECKPOINT_DIR by default. The last two checkpoints are kept. Several ranks stop after the same batch.
    If a periodic save fails, for example because the disk is full, training continues and saves again after the next batch;
    with `on_save_error="raise"`, training ends.
    """

    def __init__(
        self,
        every_steps: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        on_save_error: OnSaveError = "warn",
    ) -> None:
        if every_steps is not None and every_steps <= 0:
            raise ValueError(f"every_steps={every_steps!r} must be greater than 0")
        self._every_steps = every_steps
        self._checkpoints = FrameworkCheckpoints(directory, on_save_error=on_save_error)
        self._failures = 0
        """The number of failed saves since the last one that succeeded."""
        self._retry_at: int | None = None
        self._batches = 0

    def newest(self) -> str | None:
        """The newest checkpoint, for `ckpt_path`; None on a first run. Call it in the main thread, before `fit`."""
        found = self._checkpoints.newest()
        return None if found is None else str(found / "trainer.ckpt")

    def resumable(self, loader: Iterable[T]) -> ResumableLoader[T]:
        """The training's loader, so that a run resumes at the batch where the last one has stopped.

        Without it, Lightning starts the data of the epoch from the beginning. With several ranks, give the loader a
        DistributedSampler: Lightning adds one to plain DataLoaders alone.
        """
        return ResumableLoader(loader)

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._batches = state_dict["batches"]

    def on_train_start(self, trainer: Trainer, _module: LightningModule) -> None:
        self._checkpoints.listen()  # Lightning's own handler ends the training without a save
        total = trainer.estimated_stepping_batches
        steps(int(total) if 0 < total < float("inf") else None, done=self._batches)

    def on_train_batch_end(self, trainer: Trainer, _module: LightningModule, *_batch: Any) -> None:
        self._batches += 1
        steps().advance()
        is_due = self._every_steps is not None and self._batches % self._every_steps == 0
        is_due = is_due or self._batches == self._retry_at
        if not (self._checkpoints.is_stop_due() or is_due):
            return
        run = int(os.environ.get("EBB_RUN") or 0)
        folder = self._checkpoints.directory / folder_name(_NAME, self._batches, run)
        with steps().saving():
            failed = self._checkpoints.handle_failure(_save(trainer, folder / "trainer.ckpt"), folder)
            if failed or not self._checkpoints.finish_save(folder, self._batches):
                self._failures += 1
                self._retry_at = self._batches + pause_after(self._failures)
                return
            self._failures, self._retry_at = 0, None
            self._checkpoints.clear(_NAME)

    def on_fit_end(self, _trainer: Trainer, _module: LightningModule) -> None:
        self._checkpoints.finish()


def _save(trainer: Trainer, path: Path) -> Exception | None:
    """Save, and return the error, or None. Ranks synchronize at the end of a save, even one that has failed."""
    try:
        trainer.save_checkpoint(path)
    except OSError as error:
        failure: Exception = error
    except RuntimeError as error:  # of torch.save, on a full disk
        failure = error
    else:
        return None
    trainer.strategy.barrier("Trainer.save_checkpoint")
    return failure
