"""Training programs that tests park."""

TRAINING = """
import copy, json, select, sys, torch
torch.set_num_threads(1)
torch.manual_seed(3)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(200, 64)
        self.lstm = torch.nn.LSTM(64, 64, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(64)
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(64, 200, bias=False)
        self.head.weight = self.embedding.weight  # tied
        self.late = torch.nn.Linear(64, 64)  # has no gradient, and so no state, before step 100

    def forward(self, words, late):
        hidden = self.lstm(self.embedding(words))[0][:, -1]
        if late:
            hidden = hidden + self.late(hidden)
        return self.head(self.drop(self.norm(hidden)))


model = Model()
mean = copy.deepcopy(model)
view = model.embedding.weight.data.view(-1)[7:19]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
identities = [id(parameter) for parameter in model.parameters()]
losses, step, goal = [], 0, int(sys.argv[1])
while step != goal:
    words = torch.randint(200, (8, 6))
    loss = torch.nn.functional.cross_entropy(model(words, step >= 100), words[:, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for kept, parameter in zip(mean.parameters(), model.parameters()):
            kept.lerp_(parameter, 0.01)
    step += 1
    losses.append(loss.item().hex())
    if step % 10 == 0 and select.select([sys.stdin], [], [], 0)[0]:
        goal = step
state = [view.sum(), *(kept.sum() for kept in mean.parameters()), *(part.sum() for part in model.state_dict().values())]
assert identities == [id(parameter) for parameter in model.parameters()]
assert model.head.weight is model.embedding.weight
print(json.dumps([losses, [part.item().hex() for part in state if part.is_floating_point()]]))
"""
"""Prints all losses, and sums of its state, as exact numbers."""

LOOP = """
import os, signal, sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def caught(number, frame):
    print("caught", model.weight.untyped_storage().nbytes(), flush=True)
    if number == signal.SIGUSR1:
        sys.exit(7)


if "catch" in sys.argv:
    signal.signal(signal.SIGTERM, caught)
    signal.signal(signal.SIGUSR1, caught)
if "ignore" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "pid" in sys.argv:
    print("pid", os.getpid(), flush=True)
x = torch.randn(4, 1000)
if "big" in sys.argv:
    kept = [torch.ones(1 << 20) for _ in range(128)]
if "functional" in sys.argv:
    forward = lambda x: torch.nn.functional.linear(x, model.weight, model.bias)
else:
    forward = model
while True:
    loss = forward(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
"""Trains until it is ended."""

JOB = """
import json, os, sys, torch
from client_sdk.training import job
torch.set_num_threads(1)
torch.manual_seed(3)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.drop = torch.nn.Dropout(0.2)
        self.head = torch.nn.Linear(32, 100, bias=False)
        self.head.weight = self.embedding.weight  # tied

    def forward(self, words):
        return self.head(self.drop(self.norm(self.embedding(words).mean(1))))


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, number):
        return torch.tensor([number % 100, number % 7, number % 11])


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
mean = [parameter.detach().clone() for parameter in model.parameters()]
losses = {}
loader = torch.utils.data.DataLoader(Words(), batch_size=4, shuffle=True)
job.checkpointable(model=model, optimizer=optimizer, schedule=schedule, mean=mean, loader=loader, losses=losses)
kept = [torch.ones(1 << 20) for _ in range(8)]  # 32 MiB that no part of the checkpoint has
accumulate = int(sys.argv[2]) if len(sys.argv) > 2 else 1
for epoch in job.epochs(int(sys.argv[1])):
    for words in job.steps(loader, accumulate=accumulate):
        loss = torch.nn.functional.cross_entropy(model(words), words[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for average, parameter in zip(mean, model.parameters()):
                average.lerp_(parameter, 0.01)
        losses[str(job.step)] = loss.item().hex()
print(json.dumps(losses))
"""
"""Trains with `job.checkpointable`, and prints all losses as exact numbers. Arguments: epochs, and steps to accumulate over."""

OWN = """
import os, torch
from client_sdk.training import Checkpointer
torch.set_num_threads(1)
model = torch.nn.Linear(100, 100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Checkpointer() as checkpoint:
    while True:
        optimizer.zero_grad()
        model(torch.ones(1, 100)).sum().backward()
        optimizer.step()
        checkpoint.at_boundary(model.state_dict)
"""
"""Has a checkpoint of its own, by Checkpointer."""
