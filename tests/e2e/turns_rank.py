"""A rank of a gang that trains by DistributedDataParallel, and can be parked: its memory on CPUs counts as that of a device.

It appends a line to EVIDENCE for each step: job, rank, step, the time and the exact loss. It ends at the step in the file END.
"""

import os
import time
from pathlib import Path

os.environ["EBB_PARK_DEVICES"] = "cpu"  # which only the program itself may set

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, job = dist.get_rank(), os.environ.get("EBB_JOB_ID", "0")
    evidence = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    end = Path(os.environ["END"])
    net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    model = DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, goal = 0, -1
    while step != goal:
        random = torch.Generator().manual_seed(100 * step + rank)
        loss = model(torch.randn(8, 8, generator=random)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        os.write(evidence, f"{job} {rank} {step} {time.time():.4f} {loss.item().hex()}\n".encode())
        time.sleep(0.01)
        if step % 10 == 0 and goal < 0:  # rank 0 has all ranks end after the same step
            last = torch.zeros(1)
            if rank == 0 and end.exists() and (text := end.read_text()):
                last += max(int(text), step + 1)
            dist.all_reduce(last)
            goal = int(last) or -1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
