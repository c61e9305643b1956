"""Lightning: `python examples/training/lightning_trainer.py`, or the same by `torchrun`. It can be preempted at any batch."""

import os
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from client_sdk.training.lightning import EbbCallback

EPOCHS = int(os.environ.get("EPOCHS", "10"))


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
        self.done = 0

    def training_step(self, batch: Any, _batch_idx: int) -> Any:
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        print(f"step {self.global_step + 1} loss {loss.item().hex()}", flush=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)]


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    data = TensorDataset(x, x.sin().sum(1, keepdim=True))
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    sampler = DistributedSampler(data, ranks, rank) if ranks > 1 else None
    loader = DataLoader(data, batch_size=16, sampler=sampler, shuffle=sampler is None)
    model = Model()

    ebb = EbbCallback(every_steps=100)
    trainer = Trainer(
        max_epochs=EPOCHS,
        callbacks=[ebb],
        strategy="ddp" if ranks > 1 else "auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, ebb.resumable(loader), ckpt_path=ebb.newest())


if __name__ == "__main__":
    main()
