"""For the Trainer of Hugging Face transformers: a callback that saves and stops when the job is preempted.

from client_sdk.training.transformers import EbbCallback

ebb = EbbCallback()
trainer = Trainer(args=TrainingArguments(output_dir=ebb.directory, ...), callbacks=[ebb], ...)
trainer.train(resume_from_checkpoint=ebb.newest())
"""

import os
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from client_sdk.training._framework import FrameworkCheckpoints
from client_sdk.training._storing.periodic_saves import OnSaveError, pause_after
from client_sdk.training.step_counter import steps


class EbbCallback(TrainerCallback):
    """Makes the Trainer save its own checkpoint after an optimizer step when a stop is requested, then stops the program.

    The Trainer's own settings (`save_steps`, `save_total_limit`) say when it saves otherwise, and what it keeps. Each of its
    checkpoints gets a manifest with checksums, and a run resumes from the newest one that is whole. Several ranks stop after
    the same step. `directory` is EBB_CHECKPOINT_DIR by default. If a periodic save fails, for example because the disk is
    full, training continues and the Trainer saves again after the next step; with `on_save_error="raise"`, training ends. It
    also ends if several ranks write together (FSDP, DeepSpeed, `load_best_model_at_end`), as the others would wait for the
    rank that failed.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, on_save_error: OnSaveError = "warn") -> None:
        self._checkpoints = FrameworkCheckpoints(directory, on_save_error=on_save_error)
        self.directory = str(self._checkpoints.directory)
        """The value for `output_dir`."""
        self._failures = 0
        """The number of failed saves since the last one that succeeded."""
        self._retry_at: int | None = None
        self._failed_at: int | None = None
        """The step of the Trainer's last save, if that has failed."""

    def newest(self) -> str | None:
        """The newest checkpoint, for `resume_from_checkpoint`; None on a first run.

        Call it in the main thread, before `train`.
        """
        found = self._checkpoints.newest()
        return None if found is None else str(found)

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        self._checkpoints.listen()
        steps(state.max_steps if state.max_steps > 0 else None, done=state.global_step)

    def on_step_end(self, _args: Any, state: Any, control: Any, **_kwargs: Any) -> Any:
        steps().advance()
        if self._checkpoints.is_stop_due() or state.global_step == self._retry_at:
            control.should_save = True
        return control

    def _save(self, trainer: Trainer, write: Callable[[], None]) -> None:
        """Write the Trainer's checkpoint. A failure does not end training if it can continue without this checkpoint."""
        step, failure = trainer.state.global_step, None
        try:
            write()
        except (OSError, RuntimeError) as error:  # RuntimeError: of torch.save, on a full disk
            if _ranks_write_together(trainer):
                raise
            failure = error
        self._failed_at = step if self._checkpoints.handle_failure(failure, _folder(trainer.args, step)) else None

    def on_save(self, args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        step = state.global_step
        with steps().saving():
            is_saved = self._failed_at != step and self._checkpoints.finish_save(_folder(args, step), step)
        self._failures = 0 if is_saved else self._failures + 1
        self._retry_at = None if is_saved else step + pause_after(self._failures)

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        self._checkpoints.finish()


def _folder(args: Any, step: int) -> Path:
    """Return the folder of the Trainer's checkpoint of this step."""
    return Path(args.output_dir) / f"checkpoint-{step}"


def _ranks_write_together(trainer: Trainer) -> bool:
    """Whether ranks wait for each other while they save."""
    together = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled or trainer.state.best_global_step
    return trainer.args.world_size > 1 and bool(together)


def _guard_write(write: Callable[..., None]) -> Callable[..., None]:
    """The Trainer offers callbacks no way to hear of a save that has failed, so its method is replaced."""

    @wraps(write)
    def write_guarded(trainer: Trainer, *args: Any, **more: Any) -> None:
        ours = next((one for one in trainer.callback_handler.callbacks if isinstance(one, EbbCallback)), None)
        if ours is None:
            write(trainer, *args, **more)
        else:
            ours._save(trainer, partial(write, trainer, *args, **more))

    return write_guarded


Trainer._save_checkpoint = _guard_write(Trainer._save_checkpoint)
