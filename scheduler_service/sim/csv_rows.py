"""Reading of traces: rows of text with a header, gzipped if the name ends with .gz, and errors that name the place."""

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TextIO

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.limits import LARGEST, LATEST_S


class BadTrace(Exception):
    """The file is not as expected; the message names the file, the line, the column and the rule."""

    def __init__(self, file: Path, line: int, column: str, rule: str) -> None:
        place = [str(file), *([f"line {line}"] if line else []), *([f"column {column}"] if column else [])]
        super().__init__(f"{', '.join(place)}: {rule}")
        self.file, self.line, self.column, self.rule = file, line, column, rule

    def __reduce__(self) -> tuple[type["BadTrace"], tuple[Path, int, str, str]]:
        return BadTrace, (self.file, self.line, self.column, self.rule)  # so that it can be sent back from another process


class Skipped(Counter[str]):
    """The parts of a trace that became no job, counted by reason: nothing is left out without a message."""

    def __str__(self) -> str:
        return "\n".join(f"{count:,} skipped: {why}" for why, count in self.most_common())


@dataclass(frozen=True, slots=True)
class Row:
    file: Path
    line: int
    values: dict[str, str]
    worked: list[Micros]
    """The total work of the file's jobs so far: one number that all its rows share."""

    def bad(self, column: str, rule: str) -> BadTrace:
        return BadTrace(self.file, self.line, column, rule)

    def text(self, column: str) -> str:
        return self.values.get(column, "")

    def amount(self, column: str, scale: int = 1, default: int | None = None) -> int:
        """Parse a number that is not negative, times `scale`, rounded; with a scale of 1 it must be whole. An empty value is
        the default, if there is one."""
        text = self.values.get(column, "")
        if text.isdigit() and text.isascii() and len(text) < 16 and (value := int(text) * scale) <= LARGEST:
            return value  # most are; it is several times as fast
        text = text.strip()
        return default if not text and default is not None else self.parse_amount(column, text, scale)

    def parse_amount(self, column: str, text: str, scale: int = 1) -> int:
        """Like `amount`, for a part of the column's text."""
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise self.bad(column, f"must be a number, and is {text!r}") from None
        if not value.is_finite() or value < 0:
            raise self.bad(column, f"must be a number from 0 on, and is {text!r}")
        if value > LARGEST // scale:
            raise self.bad(column, f"must be {LARGEST // scale:g} at most, and is {text!r}")
        if scale == 1 and value != int(value):
            raise self.bad(column, f"must be a whole number, and is {text!r}")
        return round(value * scale)

    def lasts(self, column: str, work_us: Micros) -> Micros:
        """Add the job's work to the total and return it: a file may have no more than a simulation can last."""
        self.worked[0] += work_us
        if self.worked[0] > LARGEST:
            so_far, end = self.worked[0] / SECOND, LARGEST / SECOND
            raise self.bad(
                column, f"with it the jobs so far work for {so_far:.3g} s, and a simulation ends at {end:.3g} s at most"
            )
        return work_us

    def micros(self, column: str, default: Micros | None = None) -> Micros:
        """Parse a column of seconds."""
        text = self.values.get(column, "")
        if text.isdigit() and text.isascii() and len(text) < 13:  # as most amounts are; it is less than the maximum
            return int(text) * SECOND
        value = self.amount(column, SECOND, default)
        if value > LATEST_S * SECOND:
            raise self.bad(column, f"must be {LATEST_S:g} at most, and is {text!r}")
        return value


def rows(file: Path, needed: Collection[str], optional: Collection[str] | None = None, delimiter: str = ",") -> Iterator[Row]:
    """Yield the rows of a file whose first line names the columns.

    The needed columns must be present; if `optional` is given, only those may be present in addition, so that a misspelled one
    is reported. Raises BadTrace.
    """
    read, worked = 0, [0]  # the number of lines in whole rows
    try:
        with _text(file) as lines:
            quoted = delimiter != "|"
            reader = csv.reader(  # if not strict, a quote that is never closed would swallow the rest
                lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True
            )
            header = [name.strip() for name in next(reader, [])]
            _check(file, header, needed, optional)
            read = reader.line_num
            for values in reader:
                read = reader.line_num
                if len(values) != len(header):
                    if not values:
                        continue  # an empty line
                    rule = f"has {len(values)} values, where the header names {len(header)} columns"
                    raise BadTrace(file, read, "", rule)
                yield Row(file, read, dict(zip(header, values, strict=True)), worked)
    except UnicodeDecodeError as error:
        raise BadTrace(file, not_utf8(file), "", f"cannot be read: it is not UTF-8 ({error.reason})") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        line = 0 if isinstance(error, OSError) and not read else read + 1
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadTrace(file, line, "", f"cannot be read: {reason}") from error


def _check(file: Path, header: list[str], needed: Collection[str], optional: Collection[str] | None) -> None:
    for name in needed:
        if name not in header:
            raise BadTrace(file, 1, name, f"is not there; needed are {', '.join(needed)}, named in the first line")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise BadTrace(file, 1, twice, "is there twice")
    for name in header if optional is not None else ():
        if name not in needed and name not in (optional or ()):
            raise BadTrace(file, 1, name, f"is not known; there may be {', '.join([*needed, *(optional or ())])}")


def _text(file: Path) -> TextIO:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return file.open(encoding="utf-8-sig", newline="")


def not_utf8(file: Path) -> int:
    """The first line that is not UTF-8. Text is decoded many lines at a time, so the reader does not know which line failed."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0
