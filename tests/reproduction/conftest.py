"""What the tests of the reproduction share."""

from collections.abc import Iterator

import pytest

from tests.thorough import LONG
from tests.twin.watching import judged_steps


@pytest.fixture(scope="package", autouse=True)
def beginnings_judged() -> Iterator[None]:
    """The rules of the database judge the beginning of each simulation; `make test-long` has all of it judged."""
    with judged_steps(None if LONG else 100):
        yield
