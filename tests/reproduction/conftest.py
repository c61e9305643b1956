"""What the tests of the reproduction share."""

from collections.abc import Iterator

import pytest

from tests.judged_states import judged_steps
from tests.thorough import LONG


@pytest.fixture(scope="package", autouse=True)
def beginnings_judged() -> Iterator[None]:
    """The rules of the database judge the beginning of each simulation; `make test-long` has all of it judged."""
    with judged_steps(None if LONG else 100):
        yield
