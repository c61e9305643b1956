"""Launches of a gang of two ranks, which are processes, and stop signals at random moments of them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.harness import ROOT

LIMIT = 60.0
GRACE = 20.0
RANK = ROOT / "tests" / "sdk" / "rank.py"


class GangOfTwo:
    """As Ebb launches it: run after run, in one checkpoint directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.evidence = folder / "evidence"
        self.evidence.touch()
        self.run = 0

    def told(self, what: str) -> dict[int, dict[int, float]]:
        """By run and rank."""
        told: dict[int, dict[int, float]] = defaultdict(dict)
        for line in map(json.loads, self.evidence.read_text().splitlines()):
            if what in line:
                told[line["run"]][line["rank"]] = line[what]
        return told

    def launch(self) -> list[subprocess.Popen[bytes]]:
        self.run += 1
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return [self._process(number, port) for number in (0, 1)]

    def _process(self, number: int, port: int) -> subprocess.Popen[bytes]:
        (folder := self.folder / f"{self.run}.{number}").mkdir()
        own = {
            "RANK": str(number),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "EBB_RUN": str(self.run),
            "EBB_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "EBB_YIELD_FILE": str(folder / "yielded"),
            "EBB_DONE_FILE": str(folder / "done"),
            "EVIDENCE": str(self.evidence),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        with (folder / "output.log").open("wb") as log:
            return subprocess.Popen([sys.executable, str(RANK)], env={**os.environ, **own}, stdout=log, stderr=log)

    def output(self) -> str:
        return "\n".join(f"{log}:\n{log.read_text()}" for log in sorted(self.folder.glob(f"{self.run}.*/output.log")))

    def whole(self) -> float:
        """Runs to its end, undisturbed; the weights of both ranks."""
        processes = self.launch()
        for process in processes:
            assert process.wait(LIMIT) == 0, self.output()
        weights = self.told("weight")[self.run]
        assert weights[0] == weights[1]
        return weights[0]

    def interrupted(self, random: Random, longest: float) -> bool:
        """Is stopped at a random moment, its ranks not quite at once. Whether both had finished before."""
        processes = self.launch()
        if random.random() < 0.9:  # else it may still be loading
            _until(lambda: len(self.told("loaded")[self.run]) == 2 or any(p.poll() is not None for p in processes))
        time.sleep(random.random() * longest)
        for process in sorted(processes, key=lambda _: random.random()):
            process.send_signal(signal.SIGTERM)
            time.sleep(random.choice((0.0, 0.001, 0.01)))
        end = time.monotonic() + GRACE
        for process in processes:
            try:
                process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(LIMIT)
        return [process.returncode for process in processes] == [0, 0]


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.002)


def check_interruptions(folder: Path, seed: int, moments: int, longest: float) -> int:
    """Interrupts a gang so often. Both ranks of every launch go on from one step, and the weights are in the end what they are
    without interruptions. Returns how many launches went on from a checkpoint."""
    for name in ("unbroken", "broken"):
        (folder / name).mkdir()
    weight = GangOfTwo(folder / "unbroken").whole()
    random, gang = Random(seed), GangOfTwo(folder / "broken")
    for _ in range(moments):
        if gang.interrupted(random, longest):
            break
    assert gang.whole() == weight, gang.output()
    loaded = [steps for steps in gang.told("loaded").values() if len(steps) == 2]
    assert [steps for steps in loaded if steps[0] != steps[1]] == [], "the ranks go on from different steps"
    begins = [steps[0] for steps in loaded]
    assert begins == sorted(begins), f"work was lost: {begins}"
    return sum(step > 0 for step in begins)
