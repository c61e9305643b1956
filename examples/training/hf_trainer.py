"""The Trainer of Hugging Face transformers, alone or by `torchrun`: `python examples/training/hf_trainer.py`."""

import os
from typing import Any

import torch
from torch import distributed, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from client_sdk.training.transformers import EbbCallback

EPOCHS = int(os.environ.get("EPOCHS", "10"))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        found = self.layers(x)
        return {"loss": nn.functional.mse_loss(found, labels), "logits": found}


class Samples(Dataset[Any]):
    def __init__(self) -> None:
        self.x = torch.randn(512, 8)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "labels": self.x[index].sin().sum(0, keepdim=True)}


class ShowLoss(TrainerCallback):
    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_kwargs: Any) -> None:
        if "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']).hex()}", flush=True)


def main() -> None:
    torch.manual_seed(0)
    ebb = EbbCallback()
    arguments = TrainingArguments(
        output_dir=ebb.directory,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=16,
        use_cpu=not torch.cuda.is_available(),
        save_steps=100,
        save_total_limit=2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(Model(), arguments, train_dataset=Samples(), callbacks=[ebb, ShowLoss()])
    trainer.train(resume_from_checkpoint=ebb.newest())
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
