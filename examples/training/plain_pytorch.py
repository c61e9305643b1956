"""PyTorch with a loop of one's own: `python examples/training/plain_pytorch.py`. It can be preempted at any step."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from client_sdk.training import job

EPOCHS = int(os.environ.get("EPOCHS", "20"))


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    loader = DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)

    job.checkpointable(model=model, optimizer=optimizer, scheduler=scheduler, every_steps=100)
    for _ in job.epochs(EPOCHS):
        for inputs, wanted in job.steps(loader):
            loss = nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {job.step + 1} loss {loss.item().hex()}", flush=True)
        scheduler.step()


if __name__ == "__main__":
    main()
