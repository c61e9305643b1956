"""A gang of ranks that train by PyTorch, stopped at chosen moments as Ebb stops it, until its work is done."""

import json
import signal
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from tests.harness import ROOT
from tests.sdk.forked import Forked, Server

LIMIT = 60.0
GRACE = 20.0
SCRIPT = ROOT / "tests" / "sdk" / "ddp_rank.py"
MOMENTS = ("launched", "started", "entered", "loaded", "group", "step", "evaluating", "saving", "end", "done")
NOTICED_S = 0.3
"""Until the scheduler stops a gang of which a task has ended."""


class TorchGang:
    """Launched run after run, in one checkpoint directory."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        world: int,
        *,
        by_hand: bool = False,
        script: Path = SCRIPT,
        more: Mapping[str, str] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        """`by_hand`: started once, as `torchrun` does it, without what an agent says. `more` is added to the environment."""
        folder.mkdir(exist_ok=True)
        self._by_hand = by_hand
        self._script = script
        self._more = more
        self.folder = folder
        self.world = world
        self.run = 0
        self._server = server
        self._options = options
        self._evidence = folder / "evidence"
        self._evidence.touch()
        self.ranks: list[Forked] = []

    def launch(self) -> None:
        self.run += 1
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.ranks = [self._rank(number, port) for number in range(self.world)]

    def _rank(self, number: int, port: int) -> Forked:
        (folder := self._of_rank(number)).mkdir()
        own = {
            "RANK": str(number),
            "WORLD_SIZE": str(self.world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "EBB_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "EVIDENCE": str(self._evidence),
            "OPTIONS": json.dumps(self._options),
            **self._more,
        }
        if not self._by_hand:
            own |= {
                "EBB_RUN": str(self.run),
                "EBB_RUN_DIR": str(folder),
                "EBB_YIELD_FILE": str(folder / "yielded"),
                "EBB_DONE_FILE": str(folder / "done"),
            }
        return Forked(self._server, self._script, own, folder / "output.log")

    def _of_rank(self, number: int) -> Path:
        return self.folder / f"{self.run}.{number}"

    def told(self, event: str, run: int = 0) -> dict[int, list[dict[str, Any]]]:
        """What each rank has said of an event in a run, by default the last."""
        told: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for line in map(json.loads, self._evidence.read_text().split("\n")[:-1]):  # the last one may still be written
            if (line["event"], line["run"]) == (event, run or self.run):
                told[line["rank"]].append(line)
        return told

    def until(self, holds: Callable[[], object]) -> None:
        """Waits until it holds, or a rank has ended."""
        end = time.monotonic() + LIMIT
        while not holds() and all(rank.poll() is None for rank in self.ranks):
            assert time.monotonic() < end, self.output()
            time.sleep(0.002)

    def stop(self, number: int, reason: str = "preempted", grace: float = GRACE, signalled: bool = True) -> None:
        """Stops a task as an agent does."""
        if not (file := self._of_rank(number) / "stop.json").exists():
            file.with_suffix(".new").write_text(json.dumps({"reason": reason, "cause_job": 0, "grace_s": grace}))
            file.with_suffix(".new").rename(file)
            if signalled:
                self.ranks[number].send_signal(signal.SIGTERM)

    def ended(self) -> list[int]:
        """How all ranks have ended. As the scheduler does, stops those whose gang has lost a rank."""
        end = time.monotonic() + GRACE
        first: float | None = None
        while any(rank.poll() is None for rank in self.ranks):
            if any(rank.poll() not in (None, 0) for rank in self.ranks):
                first = first or time.monotonic()
                if time.monotonic() > first + NOTICED_S:
                    for number in range(self.world):
                        self.stop(number, "gang")
            if time.monotonic() > end:
                hung = [number for number, rank in enumerate(self.ranks) if rank.poll() is None]
                self.kill()
                raise AssertionError(f"ranks {hung} of run {self.run} hang:\n{self.output()}")
            time.sleep(0.005)
        return [rank.wait(LIMIT) for rank in self.ranks]

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait(LIMIT)

    def output(self) -> str:
        logs = sorted(self.folder.glob(f"{self.run}.*/output.log"))
        return "\n".join(f"{log}:\n{log.read_text()}" for log in logs) + self._evidence.read_text()[-3000:]

    def loaded(self) -> int | None:
        """The step from which the last run went on; None if a rank never came to it. It is the same on all ranks."""
        steps = [lines[0]["step"] for lines in self.told("loaded").values()]
        assert len(set(steps)) <= 1, f"the ranks go on from different steps:\n{self.output()}"
        return steps[0] if len(steps) == self.world else None

    def reached(self) -> int:
        """The last step that all ranks have done in this run; 0 for none."""
        told = self.told("step")
        return min(lines[-1]["step"] for lines in told.values()) if len(told) == self.world else 0

    def whole(self) -> list[list[float]]:
        """Runs to the end; the losses of each rank."""
        self.launch()
        assert self.ended() == [0] * self.world, self.output()
        self.loaded()
        told = self.told("done")
        return [told[rank][0]["losses"] for rank in range(self.world)]


def interrupt(gang: TorchGang, random: Random, moment: str) -> list[int]:
    """A run that is stopped at a moment, by a stop that reaches some or all of its ranks, one after the other. How it ended."""
    gang.launch()
    if moment == "step":
        goal = gang.reached() + random.randrange(1, 30)
        gang.until(lambda: any(len(lines) >= goal for lines in gang.told("step").values()))
    elif moment != "launched":
        gang.until(lambda: gang.told(moment))
    time.sleep(random.choice((0.0, 0.001, 0.005)))
    order = random.sample(range(gang.world), gang.world)
    only_some = random.random() < 0.3
    for number in order[: random.randrange(1, gang.world) if only_some else gang.world]:
        gang.stop(number, signalled=random.random() < 0.8)
        time.sleep(random.choice((0.0, 0.0, 0.001, 0.02)))
    return gang.ended()


def check_moments(server: Server, folder: Path, world: int, seed: int, moments: Sequence[str], **options: Any) -> int:
    """Stops a gang at each of the moments, and begins another one when it is done. Returns how many stops lost a step
    that all ranks had done."""
    losses = TorchGang(server, folder / "unbroken", world, **options).whole()
    random, count, lost = Random(seed), 0, 0
    left = list(moments)
    while left:
        count += 1
        gang = TorchGang(server, folder / f"gang-{count}", world, **options)
        least = 0
        while left:
            ends = interrupt(gang, random, moment := left.pop())
            # If a rank ends before it has entered its Checkpointer, the others may fail to make their process group.
            allowed = {0, 143} if gang.reached() else {0, 143, 1, -signal.SIGTERM}
            assert set(ends) <= allowed, (moment, ends, gang.output())
            begun = gang.loaded()
            assert begun is None or begun == least, f"{moment}: run {gang.run} began at {begun}, not {least}\n{gang.output()}"
            if all(status == 0 for status in ends):
                assert [lines[0]["losses"] for _, lines in sorted(gang.told("done").items())] == losses, gang.output()
                break
            yet = newest(gang)
            lost += yet < gang.reached()
            assert yet >= least, f"{moment}: {yet} after {least}\n{gang.output()}"
            least = yet
        else:
            assert gang.whole() == losses, gang.output()
    return lost


def newest(gang: TorchGang) -> int:
    """The newest step that is whole on every rank."""
    return newest_in(gang.folder / "checkpoints", gang.world)


def newest_in(checkpoints: Path, world: int) -> int:
    """The newest step that is whole on every rank, by the names of the files."""
    steps: dict[str, set[int]] = defaultdict(set)
    for path in checkpoints.glob("checkpoint.*.ckpt"):
        name, _, step = path.name.removesuffix(".ckpt").rsplit("-", 2)
        steps[name].add(int(step))
    if "checkpoint.all" not in steps and len(steps) < world:
        return 0
    return max(set.intersection(*steps.values()), default=0)
