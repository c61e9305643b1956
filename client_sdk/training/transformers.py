"""For the Trainer of Hugging Face transformers: a callback that saves and stops when the job is preempted.

from client_sdk.training.transformers import EbbCallback

ebb = EbbCallback()
trainer = Trainer(args=TrainingArguments(output_dir=ebb.directory, ...), callbacks=[ebb], ...)
trainer.train(resume_from_checkpoint=ebb.newest())
"""

import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from client_sdk.training._framework import FrameworkCheckpoints
from client_sdk.training._run.save_errors import OnSaveError
from client_sdk.training.step_counter import steps


class EbbCallback(TrainerCallback):
    """Has the Trainer save its own checkpoint after an optimizer step when a stop is asked for, and then stops the program.

    The Trainer's own settings (`save_steps`, `save_total_limit`) say when it saves otherwise, and what it keeps. Each of its
    checkpoints gets a manifest with checksums, and a run resumes from the newest one that is whole. Several ranks stop after
    the same step. `directory` is EBB_CHECKPOINT_DIR by default. If the manifest cannot be written, as on a full disk, the
    training goes on without this checkpoint; with `on_save_error="raise"` it ends, as it does if the Trainer cannot save.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, on_save_error: OnSaveError = "warn") -> None:
        self._checkpoints = FrameworkCheckpoints(directory, on_save_error=on_save_error)
        self.directory = str(self._checkpoints.directory)
        """For `output_dir`."""

    def newest(self) -> str | None:
        """The newest checkpoint, for `resume_from_checkpoint`; None on a first run.

        Call it in the main thread, before `train`.
        """
        found = self._checkpoints.newest()
        return None if found is None else str(found)

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        self._checkpoints.listen()
        steps(state.max_steps if state.max_steps > 0 else None, done=state.global_step)

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_kwargs: Any) -> Any:
        steps().advance()
        if self._checkpoints.is_stop_due():
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        with steps().saving():
            self._checkpoints.saved(Path(args.output_dir) / f"checkpoint-{state.global_step}", state.global_step)

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        self._checkpoints.finish()
