"""DistributedDataParallel: `torchrun --nproc-per-node 2 examples/training/torchrun_ddp.py`. All ranks resume from one step."""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from client_sdk.training import job

EPOCHS = int(os.environ.get("EPOCHS", "20"))


def main() -> None:
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    data = TensorDataset(x, x.sin().sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, seed=1))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters())

    job.checkpointable(model=model, optimizer=optimizer, every_steps=10)
    for _ in job.epochs(EPOCHS):
        for inputs, wanted in job.steps(loader):
            loss = nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"rank {rank} step {job.step + 1} loss {loss.item().hex()}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
