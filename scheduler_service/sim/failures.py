"""Nodes that die, and come back: a schedule, from a file or drawn."""

import csv
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import NamedTuple

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.limits import LONGEST_S


class BadSchedule(Exception):
    """These failures cannot happen; the message names the line and the rule."""


class Failure(NamedTuple):
    """A node dies with all that runs on it, and comes back empty. Times count from the beginning of the simulation."""

    node: int
    """The node's number, from 1 in the order of the site's nodes."""
    at_us: Micros
    back_us: Micros | None = None
    """When it comes back; None: never."""


class Outages(NamedTuple):
    """The nodes that die, and when others learn of it."""

    failures: Iterable[Failure] = ()
    """Failures in the order of their times."""
    silent_after_us: Micros = 10 * SECOND
    """How long after a death the scheduler notices it, like its own setting of that name."""
    fence_after_us: Micros | None = None
    """How long after a death a node that is still away is declared dead, so that its jobs run elsewhere. None: never, and they
    wait until it is back."""


NO_OUTAGES = Outages()


@dataclass(frozen=True, slots=True)
class Exponential:
    """Each node fails independently of the others, as likely in one minute as in any other.

    A node's failures follow from the seed and its number alone: they do not depend on the number of nodes or on the time span.
    """

    nodes: int
    mtbf_us: Micros
    """Mean time for which a node is up."""
    mttr_us: Micros
    """Mean time for which it is away."""
    until_us: Micros
    """No node dies later: a schedule has an end, because the simulation must have one."""
    seed: int = 0

    def __iter__(self) -> Iterator[Failure]:
        return heapq.merge(*(self._failures_of(node) for node in range(1, self.nodes + 1)), key=_time_and_node)

    def _failures_of(self, node: int) -> Iterator[Failure]:
        rng, at = Random(f"{self.seed}:failures:{node}"), 0
        while (at := at + _draw_time(rng, self.mtbf_us)) <= self.until_us:
            yield Failure(node, at, at := at + _draw_time(rng, self.mttr_us))


def _time_and_node(failure: Failure) -> tuple[Micros, int]:
    return failure.at_us, failure.node


def _draw_time(rng: Random, mean_us: Micros) -> Micros:
    return max(round(rng.expovariate(1 / mean_us)), 1)


def read_schedule(lines: Iterable[str]) -> Sequence[Failure]:
    """Read a CSV with the columns node, at_s and back_s, in any order of rows: the node's number from 1, and seconds from the
    beginning. An empty back_s means that it does not come back. Raises BadSchedule."""
    failures = []
    for line, row in _rows(lines):
        try:
            node, at, back = int(row["node"]), float(row["at_s"]), float(row["back_s"]) if row["back_s"] else None
        except (KeyError, TypeError, ValueError) as error:
            raise BadSchedule(
                f"line {line}: node must be a whole number, at_s and back_s seconds, back_s perhaps empty ({error})"
            ) from error
        if node < 1 or not 0 <= at <= LONGEST_S or (back is not None and not at < back <= LONGEST_S):
            rule = f"node must be 1 or more, at_s not negative, and back_s later than at_s, both {LONGEST_S:g} at most"
            raise BadSchedule(f"line {line}: {rule}")
        failures.append(Failure(node, round(at * SECOND), None if back is None else round(back * SECOND)))
    for before, after in pairwise(sorted(failures)):
        if before.node == after.node and (before.back_us is None or after.at_us < before.back_us):
            raise BadSchedule(f"node {after.node} dies at {after.at_us / SECOND:g} s, and is not back from the time before")
    return sorted(failures, key=_time_and_node)


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows with their line numbers."""
    rows, read = csv.DictReader(lines, strict=True), 0
    try:
        if sorted(rows.fieldnames or ()) != ["at_s", "back_s", "node"]:
            raise BadSchedule("line 1: it must name the columns node, at_s and back_s, each once, and no others")
        read = rows.line_num
        for row in rows:
            read = rows.line_num
            if None in row:
                raise BadSchedule(f"line {read}: has more values than the three columns of the first line")
            yield read, row
    except csv.Error as error:
        raise BadSchedule(f"line {read + 1}: cannot be read: {error}") from error
