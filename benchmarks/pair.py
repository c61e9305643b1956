"""Two schedulers on one PostgreSQL, one of which leads, with an agent; each of them a process, with its default settings."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from examples.cluster import Cluster
from scheduler_service.store import Embedded

LIMIT = 60.0
"""Seconds after which a bench gives up waiting."""


class Pair:
    """The processes, and what the database and the logs say of them."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self.cluster = cluster
        self.url = url

    @property
    def address(self) -> str:
        """The addresses of both, for clients."""
        return self.cluster.address

    def ask(self, query: str) -> Any:
        """Return the first row of a query."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchone()

    def leader(self) -> str:
        """The name of the process that leads."""
        (address,) = self.ask("SELECT address FROM leader")
        return next(name for name, at in {"scheduler": self.cluster.listen, **self.cluster.standbys}.items() if at == address)

    def epoch(self) -> int:
        """How many leaderships there have been."""
        return int(self.ask("SELECT epoch FROM leader")[0])

    def leader_address(self) -> str:
        return str(self.ask("SELECT address FROM leader")[0])

    def log_size(self, name: str) -> int:
        return (self.cluster.folder / f"{name}.log").stat().st_size

    def log(self, name: str, after: int = 0) -> str:
        """Return the log of a process, from a byte on."""
        return (self.cluster.folder / f"{name}.log").read_bytes()[after:].decode(errors="replace")

    def wait_standing_by(self, name: str, after: int) -> None:
        """Wait until a scheduler has logged, after that byte of its log, that it is standing by."""
        wait_until(lambda: "standing by" in self.log(name, after), f"the {name} stands by")


def wait_until(what: Callable[[], object], words: str) -> None:
    """Raises RuntimeError if it takes longer than LIMIT."""
    limit = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > limit:
            raise RuntimeError(f"waited {LIMIT:g} s until {words}")
        time.sleep(0.01)


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Start both schedulers, wait until one leads and the other is a standby, and remove everything at the end."""
    database = Embedded(folder / "pg", state_dir=folder / "state")
    url = database.start()
    try:
        with Cluster(folder / "site", database=url) as cluster:
            cluster.start_scheduler()
            cluster.start_standby()
            cluster.start_agent("node-1", "cpu-20c")
            made = Pair(cluster, url)
            made.wait_standing_by("standby", 0)
            yield made
    finally:
        database.stop()
