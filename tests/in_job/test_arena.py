"""The host memory of parked programs."""

from itertools import pairwise
from typing import Any

import pytest

from ebb_inject.ebb_hook import arena


@pytest.fixture(scope="module")
def torch(training_packages: None) -> Any:
    import torch

    return torch


def test_the_arena_is_kept_and_grows_by_what_is_missing(torch: Any) -> None:
    found = arena.Arena(torch, pinned=False)
    first = found.places([1000, 5000])
    assert found.size == 1024 + 5120
    assert [(place.begin, place.end) for place in first] == [(0, 1000), (1024, 6024)]
    assert found.places([6144])[0].chunk is first[0].chunk
    more = found.places([5000, 1024, 2000])
    assert [place.chunk is first[0].chunk for place in more] == [True, True, False]
    assert found.size == 6144 + 2048
    assert len(found.addresses) == 2
    spread = [(place.chunk.data_ptr() + place.begin, place.chunk.data_ptr() + place.end) for place in more]
    spread.sort()
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spread))
