"""Single values, as a command line or a job file has them. Each function raises InvalidArgument where they are wrong."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from client_sdk.errors import InvalidArgument
from client_sdk.units import parse_duration, parse_memory


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r} is not text; put it in quotes")
    return value


def whole_number(value: Any) -> int:
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, str) and re.fullmatch("-?[0-9]+", value))):
        raise InvalidArgument(f"{value!r} is not a whole number")
    return int(value)


def number(value: Any) -> float:
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise InvalidArgument(f"{value!r} is not a number")


def memory(value: Any) -> str | int:
    return parse_memory(value if isinstance(value, str) else whole_number(value))


def time(value: Any) -> timedelta:
    """A number in a file is read as it is written there: 30 has no unit, and 1:30, which is 90 in YAML, is no duration."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidArgument(f"{value!r} is not a duration; write it like 30s, 5m or 1h30m")
    return parse_duration(str(value))


def split_parts(value: Any) -> list[Any]:
    """A list, or text with commas (or Slurm's colons) between the parts, or one thing."""
    parts = value if isinstance(value, list | tuple) else [value]
    split = (re.split("[,:]", part) if isinstance(part, str) else [part] for part in parts)
    return [part.strip() if isinstance(part, str) else part for each in split for part in each]


def ids(value: Any) -> list[int]:
    found = [whole_number(part) for part in split_parts(value)]
    if any(job_id < 1 for job_id in found):
        raise InvalidArgument("ids of jobs are whole numbers from 1")
    return found


def names(value: Any) -> list[str]:
    """A list, or text with commas between the parts."""
    parts = value if isinstance(value, list | tuple) else [value]
    return [part.strip() for each in parts for part in text(each).split(",")]


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{value!r} is not true or false")
    return value


def one_of(*words: str, wrong: str) -> Callable[[Any], str]:
    """One of some words. `wrong`: what is said of any other, such as "is unknown"."""
    listed = f"{', '.join(words[:-1])} or {words[-1]}"

    def read(value: Any) -> str:
        if value not in words:
            raise InvalidArgument(f"{value!r} {wrong}; it is {listed}")
        return str(value)

    return read


def command(value: Any) -> list[str]:
    """Words; numbers among them are written as they stand."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidArgument(f"{value!r} is not a list of words; write it like [python, train.py]: no shell splits it")
    wrong = [word for word in value if isinstance(word, bool) or not isinstance(word, str | int | float)]
    if wrong:
        raise InvalidArgument(f"{wrong[0]!r} is not a word; put it in quotes")
    return [str(word) for word in value]


def unknown(key: str, known: Iterable[str], of: str) -> str:
    """Return the error message for an unknown key."""
    from difflib import get_close_matches

    close = get_close_matches(key, known := list(known), 1)
    return f"{key!r} is no key of {of}" + (f" (did you mean {close[0]!r}?)" if close else f"; those are {', '.join(known)}")
