"""Amounts as people write them: memory and durations."""

import re
from datetime import UTC, datetime, timedelta
from math import ceil

from client_sdk.errors import InvalidArgument

_MIB = 1024 * 1024
_BYTES: dict[str, int] = {
    "": _MIB,
    **{unit: 1024**power for power, letter in enumerate("kmgt", 1) for unit in (letter, f"{letter}ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
_TIMES = "2025-01-31T08:00 (UTC), +2h (from now) or now"
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse_memory(text: str | int) -> int:
    """An amount of memory in MiB, rounded up; a bare number counts MiB.

    >>> parse_memory("4GiB"), parse_memory("1.5G"), parse_memory("512"), parse_memory("1GB")
    (4096, 1536, 512, 954)

    Raises InvalidArgument for anything that is not an amount.
    """
    if isinstance(text, int):
        return text
    if not isinstance(text, str):
        raise InvalidArgument(f"{text!r} is not an amount of memory; give whole MiB, or text like 4GiB, 512MiB or 1.5G")
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([a-z]*)\s*", text.lower())
    if not match or match[2] not in _BYTES:
        raise InvalidArgument(f"{text!r} is not an amount of memory; write it like 4GiB, 512MiB or 1.5G")
    return ceil(float(match[1]) * _BYTES[match[2]] / _MIB)


def parse_duration(value: str | float | timedelta) -> timedelta:
    """A duration: a number of seconds, or text with units. Text without a unit is refused, because Slurm's users mean minutes
    by it; "0" needs none.

    >>> parse_duration("1h30m"), parse_duration("30s"), parse_duration(2.5)
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=30), datetime.timedelta(seconds=2, microseconds=500000))

    Raises InvalidArgument for anything that is not a duration, and for a negative one.
    """
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidArgument(f"{value!r} is not a duration; give seconds, a timedelta, or text like 30s, 5m or 1h30m")
    else:
        seconds = value if isinstance(value, int | float) else _seconds(value)
        try:
            result = timedelta(seconds=seconds)
        except (OverflowError, ValueError) as error:
            raise InvalidArgument(f"{value!r} is too long for a duration") from error
    if result < timedelta(0):
        raise InvalidArgument(f"a duration of {result.total_seconds():g} s is negative")
    return result


def parse_time(value: str | datetime, now: datetime) -> datetime:
    """A moment: "now", "+2h" from now, or a date with or without a time of the day, in UTC unless it says otherwise; or a
    datetime with a time zone.

    >>> parse_time("2025-01-31T08:00", datetime(2025, 1, 1, tzinfo=UTC)).isoformat()
    '2025-01-31T08:00:00+00:00'

    Raises InvalidArgument for anything else.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgument(f"{value.isoformat()} has no time zone; give it one, such as datetime.UTC")
        return value
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r} is not a time; give a datetime with a time zone, or text like {_TIMES}")
    said = value.strip()
    if said == "now":
        return now
    if said.startswith("+"):
        return after(now, parse_duration(said[1:]))
    try:
        found = datetime.fromisoformat(said)
    except ValueError:
        raise InvalidArgument(f"{value!r} is not a time; write it like {_TIMES}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def after(time: datetime, duration: timedelta) -> datetime:
    """Raises InvalidArgument where no calendar goes so far."""
    try:
        return time + duration
    except OverflowError:
        raise InvalidArgument(f"{duration.days} days after {time:%Y-%m-%d} is too late for a time") from None


def _seconds(value: str) -> float:
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", bare := value.strip()):
        if float(bare) == 0:
            return 0
        raise InvalidArgument(
            f"{value!r} has no unit: write {bare}s for {bare} seconds, or {bare}m for {bare} minutes (as Slurm reads it)"
        )
    text = re.sub(r"\s", "", value.lower())
    parts = re.findall(r"([0-9]+(?:\.[0-9]*)?)([a-z]+)", text)
    if not parts or "".join(n + unit for n, unit in parts) != text or not all(unit in _SECONDS for _, unit in parts):
        raise InvalidArgument(f"{value!r} is not a duration; write it like 30s, 5m or 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in parts)


def format_memory(mib: int) -> str:
    """The shortest exact form: "512MiB", "4GiB", "1TiB"."""
    for factor, unit in ((1024 * 1024, "TiB"), (1024, "GiB")):
        if mib and mib % factor == 0:
            return f"{mib // factor}{unit}"
    return f"{mib}MiB"


def format_duration(value: timedelta) -> str:
    """As in squeue's TIME: "0:07", "12:34", "1:02:03", "2-03:04:05" (days first)."""
    minutes, seconds = divmod(max(0, int(value.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"
