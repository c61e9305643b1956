"""Ranks of a gang on two nodes, in processes of their own, and the agents that ask them to park. Nodes are folders."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ebb_inject.ebb_hook import control
from tests.in_job.programs import Program, until

TRAINING = """
import json, os, select, sys, threading, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
torch.manual_seed(3)
dist.init_process_group("gloo")
rank, goal = dist.get_rank(), int(sys.argv[1])
if "alone" in sys.argv:
    dist.destroy_process_group()
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(rank))
losses = []


def train(step, goal):
    pause = 0.002 * rank  # ranks wait for the slowest in their collectives
    while step != goal:
        for _ in range(2 if "plain" not in sys.argv else 0):
            model(inputs)
        if "plain" in sys.argv:  # no forward pass of a module
            loss = torch.nn.functional.linear(inputs, model[0].weight, model[0].bias).square().mean()
        else:
            loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if "alone" not in sys.argv:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
        if pause:
            time.sleep(pause)
        optimizer.step()
        step += 1
        losses.append(loss.item().hex())
        if goal < 0 and step % 10 == 0:  # rank 0 says when all of them end
            ends = torch.zeros(1)
            if rank == 0 and select.select([sys.stdin], [], [], 0)[0]:
                ends += step + 20
            if "alone" not in sys.argv:
                dist.all_reduce(ends)
            if ends:
                goal = int(ends)


if "slow" in sys.argv and rank == 1:  # to move its memory
    from ebb_hook.tensor_offload import Mover

    def slowly(*arguments, out=Mover.move_out):
        print("moves", flush=True)
        time.sleep(1.0)
        moved = out(*arguments)
        print("moved", flush=True)
        return moved

    Mover.move_out = slowly

if "thread" in sys.argv and rank == 1:
    training = threading.Thread(target=train, args=(0, goal))
    training.start()
    training.join()
else:
    train(0, goal)
print(json.dumps({"losses": losses, "state": [part.sum().item().hex() for part in model.state_dict().values()]}))
"""


class Rank(Program):
    """One, and its agent's last request to it."""

    number = 0

    def has_trained(self, steps: int) -> bool:
        self._is_over()
        return self.counted() > steps

    def asked(self, park: int, most_bytes: int = 0) -> None:
        self.number = control.send(self.control, control.PARK_TOGETHER, at_step=park, most_bytes=most_bytes)

    def asked_back(self) -> None:
        self.number = control.send(self.control, control.RESUME)

    def answered(self) -> dict[str, Any] | None:
        """The answer to the last request."""
        found = control.answer(self.control)
        return found if found is not None and found["request"] == self.number else None

    def told(self, *states: str) -> dict[str, Any]:
        """The answer, once there is one."""
        answer = self.answer(self.control, self.number)
        assert answer["state"] in states, answer
        return answer


@contextmanager
def ranks(
    folder: Path, of: Sequence[int], *arguments: str, in_one_task: bool = False, without_hook: Sequence[int] = ()
) -> Iterator[list[Rank]]:
    """`of`: how many ranks there are on each node, each a task or, as under torchrun, all of a node `in_one_task`."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        port = str(kept.getsockname()[1])
    nodes = [node for node, count in enumerate(of) for _ in range(count)]
    gang = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "EBB_NODES": ",".join(f"n{i}" for i in range(len(of)))}
    with ExitStack() as stack:
        found = []
        for rank, node in enumerate(nodes):
            mine = {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(nodes)),
                "EBB_NODE": f"n{node}",
                "EBB_TASK": str(node if in_one_task else rank),
            }
            if rank in without_hook:
                mine["NO_EBB_HOOK"] = "1"
            (folder / str(rank)).mkdir()
            found.append(Rank(folder / str(rank), TRAINING, arguments, gang | mine))
            stack.callback(found[-1].close)
        for rank, program in enumerate(found):
            if rank not in without_hook:
                until(partial(program.has_trained, 3), f"it trains: {program.output}")
        yield found


def steps(gang: Sequence[Rank]) -> list[int]:
    return [rank.counted() for rank in gang]


def go_on(gang: Sequence[Rank]) -> None:
    """Waits for a few steps of each."""
    before = steps(gang)
    until(lambda: all(now > then + 3 for now, then in zip(steps(gang), before, strict=True)), f"they go on from {before}")


def kill(rank: Rank) -> None:
    os.kill(rank.pid, 9)
    rank.process.wait()
