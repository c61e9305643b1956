"""Rates as the authors of Gavel measured them on real K80s, P100s and V100s (OSDI 2020): alone, and in pairs on one device.

Two tables are read from files: the throughputs (see `workloads.gavel`), and pairs, with the columns `device`, `model`,
`batch_size`, `gpus`, `with_model`, `with_batch_size`, `steps_per_s` and `with_steps_per_s`. A kind is a model and a batch size,
such as `LM-5`. A rate of 0 says that the pair does not fit into the memory of the device: neither makes progress.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.csv_rows import Row, rows
from scheduler_service.sim.sharing.kinds import MILLION, UNKNOWN, Kind, Spread
from scheduler_service.sim.sharing.model import BILLION, Site

ALONE_COLUMNS = ("device", "placement", "model", "batch_size", "gpus", "steps_per_s")
PAIR_COLUMNS = ("device", "model", "batch_size", "gpus", "with_model", "with_batch_size", "steps_per_s", "with_steps_per_s")
MILLIONTHS = 1_000_000
_MIB_LARGE, _MIB_SMALL, _MIB_BOUNDARY = 8192, 5120, 256


class Tables(NamedTuple):
    """Steps per second, in millionths."""

    alone: Mapping[tuple[str, str, int, bool], int]
    """Rates by kind, device, number of devices, and whether they are spread over nodes."""
    pairs: Mapping[tuple[str, str, str, int], int]
    """Rates of the first kind next to the second, on this many devices of a model."""


@lru_cache(maxsize=4)
def tables(alone: Path, pairs: Path | None) -> Tables:
    """Read the tables. Raises BadTrace."""
    rates = {
        (_kind(row), row.text("device"), row.amount("gpus"), row.text("placement") == "spread"): _rate(row, "steps_per_s")
        for row in rows(alone, ALONE_COLUMNS)
    }
    together: dict[tuple[str, str, str, int], int] = {}
    for row in rows(pairs, PAIR_COLUMNS) if pairs is not None else ():
        first, second, where = _kind(row), _kind(row, "with_"), (row.text("device"), row.amount("gpus"))
        together[first, second, *where] = _rate(row, "steps_per_s")
        together[second, first, *where] = _rate(row, "with_steps_per_s")
    return Tables(rates, together)


def _kind(row: Row, prefix: str = "") -> str:
    return f"{row.text(f'{prefix}model')}-{row.text(f'{prefix}batch_size')}"


def _rate(row: Row, column: str) -> int:
    return row.amount(column, MILLIONTHS)


def assumed_use(found: Tables, name: str, device: str) -> tuple[int, int, int]:
    """The assumed utilization of jobs of the kind that run alone, in millionths, and their memory at the peak and at the
    boundary of two mini-batches, in MiB. The tables have only the rates of two jobs of a kind on one device.

    If two jobs do r times the work of one, each is assumed to use 1/r of the device, and all of it if r is less than 1. Two
    jobs that do not fit into a device of 16 GiB have 8 GiB each; other kinds have 5 GiB.
    """
    alone, pair = found.alone.get((name, device, 1, False), 0), found.pairs.get((name, name, device, 1), 0)
    if not alone or not pair:
        return MILLION, _MIB_LARGE, _MIB_BOUNDARY
    return min(MILLION * alone // (2 * pair), MILLION), _MIB_SMALL, _MIB_BOUNDARY


class Measured:
    """The rates of the tables. If more than two jobs are packed, each is slowed down by each of the others as in a pair."""

    interferes = False

    def __init__(self, found: Tables, reference: str, assume_use: bool = False) -> None:
        """`reference`: the model of device on which jobs take the time that the workload gives. `assume_use`: whether to assume
        the missing properties of each kind (`assumed_use`)."""
        self._found, self._reference = found, reference
        self._kinds = {
            (name, devices): Kind(
                name, SECOND * MILLIONTHS // rate, *(assumed_use(found, name, reference) if assume_use else (UNKNOWN,))
            )
            for (name, device, devices, spread), rate in found.alone.items()
            if device == reference and not spread and rate
        }

    def models(self) -> set[str]:
        """The models of devices with known rates."""
        return {device for _, device, _, _ in self._found.alone}

    def kind(self, name: str, devices: int) -> Kind | None:
        return self._kinds.get((name, devices))

    def rate_alone(self, name: str, devices: int, site: Site) -> int:
        reference = self._steps(name, self._reference, devices, spread=False)
        if not reference:
            return BILLION
        return BILLION * self._steps(name, site.model, site.devices, site.spread >= Spread.NODES) // reference

    def rate_packed(self, name: str, others: Sequence[str], site: Site) -> int:
        rate = BILLION
        for other in others:
            left = self._pair(name, other, site.model, site.devices) or self._pair(name, other, site.model, 1)
            rate = rate // 2 if left is None else rate * left[0] // left[1]  # if nobody has measured it, each has half
        return rate

    def _pair(self, name: str, other: str, model: str, devices: int) -> tuple[int, int] | None:
        """The rate of the first kind next to the second, and alone; None if it was not measured."""
        pair = self._found.pairs.get((name, other, model, devices))
        alone = self._found.alone.get((name, model, devices, False))
        return (pair, alone) if pair is not None and alone else None

    def rate_beside(self, _name: str, _neighbours: Iterable[tuple[str, int]], _networked: Iterable[int]) -> int:
        return BILLION

    def _steps(self, name: str, model: str, devices: int, spread: bool) -> int:
        """Steps of this many devices, or in proportion to the next smaller number that was measured."""
        for count in (count for count in (8, 4, 2, 1) if count <= devices):
            rate = self._found.alone.get((name, model, count, spread))
            if rate is None and spread:
                rate = self._found.alone.get((name, model, count, False))
            if rate is not None:
                return rate * devices // count
        return 0
