"""What a rank concludes from what the agent requests and the other ranks say, in one process without PyTorch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb_inject.ebb_hook import control
from ebb_inject.ebb_hook import gang_park_agreement as together
from ebb_inject.ebb_hook.control import Control, Refused, Request
from ebb_inject.ebb_hook.gang_park_agreement import Together
from ebb_inject.ebb_hook.gang_park_store import Group
from ebb_inject.ebb_hook.steps import Steps
from tests.in_job.programs import until


class Store:
    """Of a process group of two ranks, of which the test is the second one."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def clone(self) -> "Store":
        return self

    def has_extended_api(self) -> bool:
        return False

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)

    def get(self, key: str) -> bytes:
        return self.kept[key]

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value.encode()

    def says(self, number: int = 0, bound: int | None = None, moved: bool = False, knows: bool = False) -> None:
        """The other rank."""
        self.set("ebb/park/1", json.dumps((number, bound, moved, knows, ())))

    def _get_default_store(self) -> "Store":
        return self

    @property
    def heard(self) -> Any:
        """What the rank under test has said last."""
        return json.loads(self.kept.get("ebb/park/0", b"[0, null, false, false, []]"))


class Rank:
    def __init__(self, folder: Path) -> None:
        self.control = Control(str(folder))
        self.counter = Steps(None)
        self.together = Together(self.control, is_first=True)

    def asked(self, park: int) -> Request:
        control.send(self.control.path, control.PARK_TOGETHER, at_step=park)
        found = self.control.request()
        assert found is not None
        return found

    def has_agreed(self, park: int, store: Store) -> Request:
        """Comes to the common step of a park for which the other rank was asked, too."""
        store.says(park)
        request = self.asked(park)
        while not self.together.parks_after(request, self.counter, self.counter.step):
            self.counter.advance()
            if (bound := store.heard[1]) is not None:
                store.says(park, bound)
        return request


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    made.says()
    monkeypatch.setattr(together, "process_group", lambda: Group(made, 0, 2))
    return made


@pytest.fixture
def rank(store: Store, tmp_path: Path) -> Iterator[Rank]:
    made = Rank(tmp_path)
    yield made
    made.together.close()
    made.control.remove()


def test_a_rank_may_be_stopped_when_all_know_that_all_have_moved(rank: Rank, store: Store) -> None:
    rank.has_agreed(1, store)
    store.says(1, store.heard[1], moved=True, knows=True)
    rank.together.may_stop(1)
    assert store.heard[2:4] == [True, True]


def test_a_rank_whose_node_asks_for_another_park_may_not_be_stopped_for_the_first_one(rank: Rank, store: Store) -> None:
    """Its thread has gone over to the other one."""
    rank.has_agreed(1, store)
    rank.asked(2)
    until(lambda: 1 in store.heard[4], "it leaves the first park")
    with pytest.raises(Refused, match="its node asks for another park"):
        rank.together.may_stop(1)


def test_a_rank_may_not_be_stopped_for_a_park_of_which_it_knows_nothing(rank: Rank) -> None:
    with pytest.raises(Refused, match="its node asks for another park"):
        rank.together.may_stop(1)


def test_a_rank_that_ends_leaves_the_park(rank: Rank, store: Store) -> None:
    rank.has_agreed(1, store)
    rank.together.close()
    assert store.heard[0] == 0
    assert store.heard[4] == [1]


def test_a_park_that_is_taken_back_is_left_even_if_its_step_is_known(rank: Rank, store: Store) -> None:
    request = rank.has_agreed(1, store)
    with rank.together.while_parked():  # the thread does not look
        control.send(rank.control.path, control.RESUME)
        with pytest.raises(Refused, match="does not want it any more"):
            rank.together.parks_after(request, rank.counter, rank.counter.step)
