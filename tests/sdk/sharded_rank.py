"""A rank of fully sharded training (FSDP) on CPUs, with sharded checkpoints by `client_sdk.training.job`."""

import json
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from client_sdk.training import job

STEPS = 12


def tell(event: str, **facts: object) -> None:
    line = json.dumps({"run": int(os.environ["EBB_RUN"]), "rank": int(os.environ["RANK"]), "event": event, **facts})
    file = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def whole(model: torch.nn.Module) -> list[list[float]]:
    """The parameters, put together of all shards."""
    return [each.full_tensor().flatten().tolist() for each in model.parameters()]  # type: ignore[attr-defined]  # DTensors


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    seen: list[int] = []
    options: dict[str, Any] = json.loads(os.environ.get("OPTIONS", "{}"))
    job.checkpointable(model=model, optimizer=optimizer, seen=seen, sharded=True, every_steps=3, **options)
    tell("loaded", step=job.step, weights=whole(model), seen=list(seen), moments=len(optimizer.state))
    data = [torch.randn(3, 4, generator=torch.Generator().manual_seed(number)) for number in range(2 * STEPS)]
    for _ in job.epochs(1):
        for inputs in job.steps(data):
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean() * job.loss_scale
            torch.autograd.backward(loss)
            if not job.ends_step:
                continue
            optimizer.step()
            optimizer.zero_grad()
            seen.append(job.step + 1)
            tell("step", step=job.step + 1, weights=whole(model))
            dist.barrier()
    tell("end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
