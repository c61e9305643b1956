"""How ranks agree at which boundary they stop: the protocol alone, with threads for ranks, a barrier for a collective."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from client_sdk.training._gang import agreement
from client_sdk.training._gang.agreement import Agreement
from client_sdk.training._gang.notices import DONE, Channel, FileChannel, Notice, StoreChannel, merge
from client_sdk.training._gang.ranks import Ranks
from tests.harness import ROOT
from tests.sdk.fake import until
from tests.thorough import FEW, examples

LIMIT = 30


class Rank:
    """A rank that trains in a thread: each step ends in a barrier, so that no rank is more than a step ahead."""

    def __init__(self, ranks: Ranks, channel: Channel, step: Callable[[], None], steps: int) -> None:
        self.boundary = 0
        self.stopped: int | None = None
        self.abandoned = threading.Event()
        self._asked = False
        self._step = step
        self._steps = steps
        self.agreement = Agreement(ranks, [channel], "", None, self._note, lambda: self.boundary + 1, self.abandoned.set)
        self.agreement.start()
        self.thread = threading.Thread(target=self._train, daemon=True)

    def ask(self) -> None:
        self._note()
        self.agreement.ask()

    def _note(self) -> None:
        self._asked = True

    def _train(self) -> None:
        while self.boundary < self._steps:
            self._step()
            self.boundary += 1
            if self._asked and self.agreement.stops_at(self.boundary):
                self.stopped = self.boundary
                self.agreement.ready()
                self.agreement.wait_for_all()
                break
        self.agreement.close(done=self.stopped is None)


def ranks_of(world: int) -> list[Ranks]:
    return [Ranks(own, tuple(range(world)), world) for own in range(world)]


def files(folder: Path, ranks: Ranks, launch: str = "000001.0.1") -> FileChannel:
    made = FileChannel(folder, "checkpoint", ranks, launch)
    made.open()
    return made


class Store:
    """As that of a process group."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self._values[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def get(self, key: str) -> bytes:
        return self._values[key]


@pytest.mark.parametrize("by", ["files", "store"])
def test_ranks_that_are_bound_by_a_collective_stop_at_one_boundary(tmp_path: Path, by: str) -> None:
    """Whichever ranks the stop reaches, and when. Some stops come too late, and then all ranks finish."""
    random, stopped = Random(1), 0
    for number in range(examples(15)):
        world = random.choice((2, 3, 5))
        barrier, store = threading.Barrier(world), Store()
        pauses = [random.choice((0.0, 0.0, 0.002)) for _ in range(world)]
        (folder := tmp_path / str(number)).mkdir()

        def step(pause: float, barrier: threading.Barrier = barrier) -> None:
            time.sleep(pause)
            barrier.wait(LIMIT)

        gang = [
            Rank(
                ranks,
                files(folder, ranks) if by == "files" else StoreChannel(store, ranks.own, "ebb"),
                lambda pause=pause: step(pause),
                300,
            )
            for ranks, pause in zip(ranks_of(world), pauses, strict=True)
        ]
        for rank in gang:
            rank.thread.start()
        moment = min(random.randrange(1, 330), 300)
        until(lambda rank=gang[0], moment=moment: rank.boundary >= moment)
        for rank in random.sample(gang, random.randrange(1, world + 1)):
            rank.ask()
        for rank in gang:
            rank.thread.join(LIMIT)
            assert not rank.thread.is_alive(), "it hangs"
        ends = {rank.stopped for rank in gang}
        assert len(ends) == 1, f"the ranks stopped at {ends}"
        stopped += ends != {None}
    assert stopped > 5 or FEW


def test_ranks_without_collectives_stop_at_the_boundary_of_the_one_that_is_ahead(tmp_path: Path) -> None:
    """Each at its own pace; the slower ones catch up, as long as their grace period lasts."""
    gang = [
        Rank(ranks, files(tmp_path, ranks), lambda pause=pause: time.sleep(pause), 100_000)
        for ranks, pause in zip(ranks_of(3), (0.0002, 0.002, 0.001), strict=True)
    ]
    for rank in gang:
        rank.thread.start()
    until(lambda: gang[0].boundary >= 100)
    gang[1].ask()
    for rank in gang:
        rank.thread.join(LIMIT)
    assert len({rank.stopped for rank in gang}) == 1
    assert (gang[0].stopped or 0) > 100


def test_a_rank_does_not_wait_for_one_that_never_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_ENTERING", 0.2)
    monkeypatch.setattr(agreement, "_LEAVING", 0.1)
    rank = Rank(ranks_of(2)[0], files(tmp_path, ranks_of(2)[0]), lambda: None, 1)
    assert rank.agreement.stops_at(7, wait=False) is None
    assert rank.agreement.stops_at(7) is True
    assert rank.abandoned.wait(LIMIT), "the training, which may be in a collective, is told to end"
    rank.agreement.close(done=False)


def test_a_rank_does_not_wait_for_one_that_says_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_SILENT", 0.3)
    own, other = ranks_of(2)
    files(tmp_path, other)  # it has entered, and was killed
    rank = Rank(own, files(tmp_path, own), lambda: None, 1)
    assert rank.agreement.stops_at(3) is True
    rank.agreement.close(done=False)


@pytest.mark.parametrize("notice", [Notice(left=True), Notice(bound=4, left=True)])
def test_a_rank_does_not_wait_for_one_that_has_left(tmp_path: Path, notice: Notice) -> None:
    first, second, third = ranks_of(3)
    files(tmp_path, second).say(notice)
    files(tmp_path, third)
    rank = Rank(first, files(tmp_path, first), lambda: None, 1)
    assert rank.agreement.stops_at(3) is True
    rank.agreement.close(done=False)


def test_a_rank_goes_on_to_its_end_if_another_has_come_to_its_own(tmp_path: Path) -> None:
    own, other = ranks_of(2)
    files(tmp_path, other).say(Notice(bound=DONE))
    rank = Rank(own, files(tmp_path, own), lambda: None, 1)
    assert rank.agreement.stops_at(3) is False
    rank.agreement.close(done=True)


def test_a_failed_task_leaves_nobody_to_agree_with(tmp_path: Path) -> None:
    own, other = ranks_of(2)
    (stop := tmp_path / "stop.json").write_text('{"reason": "gang", "cause_job": 0, "grace_s": 60.0}')
    files(tmp_path, other)
    stops = threading.Event()
    agreement = Agreement(own, [files(tmp_path, own)], "", stop, stops.set, lambda: 5, lambda: None)
    agreement.start()
    assert stops.wait(LIMIT), "the file is a stop, with or without a signal"
    assert agreement.stops_at(4) is True
    agreement.close(done=False)


def test_a_rank_that_has_fixed_its_bound_is_not_asked_again_while_others_have_not(tmp_path: Path) -> None:
    """In a gang of hundreds of ranks that would be many files to read."""
    first, second, third = ranks_of(3)
    heard: list[int] = []

    class Counted(FileChannel):
        def hear(self, rank: int) -> Notice | None:
            heard.append(rank)
            return super().hear(rank)

    own = Counted(tmp_path, "checkpoint", first, "000001.0.1")
    own.open()
    files(tmp_path, second).say(Notice(bound=3))
    late = files(tmp_path, third)
    rank = Rank(first, own, lambda: None, 1)
    assert rank.agreement.stops_at(2, wait=False) is None
    until(lambda: heard.count(2) >= 5)
    assert heard.count(1) == 1
    late.say(Notice(bound=2))
    assert rank.agreement.stops_at(2) is False
    assert rank.agreement.stops_at(3) is True
    rank.agreement.close(done=False)


def test_what_was_said_in_another_launch_is_not_heard(tmp_path: Path) -> None:
    own, other = ranks_of(2)
    old = files(tmp_path, other)
    old.say(Notice(bound=3))
    old.ask()
    new = files(tmp_path, own, "000002.0.1")
    assert not new.is_asked()
    assert new.hear(1) is None
    files(tmp_path, other, "000002.0.1")
    assert new.hear(1) == Notice()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".checkpoint.000002.0.1.asked",
        ".checkpoint.0of2.000002.0.1.notice",
        ".checkpoint.1of2.000002.0.1.notice",
    ]


def test_what_a_rank_says_over_several_channels_adds_up() -> None:
    assert merge([]) is None
    assert merge([Notice(beat=3), Notice(bound=5, beat=2), Notice(ready=True)]) == Notice(5, True, False, 3)


def test_a_store_without_a_server_is_used_no_more(tmp_path: Path) -> None:
    class Gone(Store):
        calls = 0

        def check(self, _keys: list[str]) -> bool:
            self.calls += 1
            raise RuntimeError("connection reset by peer")

    own, other = ranks_of(2)
    store = Gone()
    files(tmp_path, other).say(Notice(bound=6))
    channels: list[Channel] = [StoreChannel(store, 0, "ebb"), files(tmp_path, own)]
    agreement = Agreement(own, channels, "", None, lambda: None, lambda: 5, lambda: None)
    agreement.start()
    assert agreement.stops_at(5) is False
    assert agreement.stops_at(6) is True
    assert store.calls == 1
    agreement.close(done=False)


RANK_WITHOUT_TORCH = """
import sys
from client_sdk.training import Checkpointer

with Checkpointer() as checkpoint:
    checkpoint.load()
    checkpoint.request_stop()
    checkpoint._agreement._thread.join(1)
    print(sorted(name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy", "grpc")))
"""


def test_a_rank_loads_nothing_that_its_program_does_not(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "EBB_CHECKPOINT_DIR": str(tmp_path), "EBB_RUN": "1"}
    command = [sys.executable, "-c", RANK_WITHOUT_TORCH]
    ran = subprocess.run(
        command, env={**environment, "RANK": "0", "WORLD_SIZE": "2"}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n", ran.stderr
