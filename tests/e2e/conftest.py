"""One cluster for the tests of a process, as long as they leave it in order: starting one takes longer than most of them."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.harness import Site, leftovers
from tests.store.fixtures import short_dir


class Pool:
    """Holds the cluster that is up, if any."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._site: Site | None = None

    def take(self) -> Site:
        if self._site is None:
            self._site = Site(self._folder / f"site-{next(self._numbers)}").__enter__()
        return self._site

    def drop(self) -> None:
        site, self._site = self._site, None
        if site is not None:
            site.__exit__()
            assert not leftovers(site.folder)


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with short_dir() as folder:
        made = Pool(folder)
        yield made
        made.drop()


@pytest.fixture
def site(pool: Pool) -> Iterator[Site]:
    """A cluster with two nodes on which nothing runs. Afterwards every job has ended, and all is as it must be."""
    made = pool.take()
    try:
        yield made
        made.check_all_ended()
        made.wait_connected()
    except BaseException:
        pool.drop()
        raise


@pytest.fixture
def folder() -> Iterator[Path]:
    """For a cluster of the test's own."""
    with short_dir() as made:
        yield made
