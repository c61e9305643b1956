"""What the options of `ebb submit` and the keys of a job file say, as the options of `Client.submit`."""

import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from client_sdk._values.options import JobOptions
from client_sdk.errors import InvalidArgument
from client_sdk.models import TaskGroup, Within
from client_sdk.units import parse_duration, parse_memory

Given = Mapping[str, Any]
"""By the keys of a job file. From the command line a value is text or a number, from a file also a list or mapping."""


def job_options(given: Given, where: Callable[[str], str]) -> JobOptions:
    """Raises InvalidArgument, with what `where` calls the key that is wrong."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        try:
            found |= _READ[key](value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where(key)}: {error}") from error
    if "tasks" in found:
        each: dict[str, Any] = {key: found.pop(key) for key in ("cpus", "memory", "devices") if key in found}
        try:
            found["tasks"] = _groups(found["tasks"], each)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where('tasks')}: {error}") from error
    return cast(JobOptions, found)


# ---- the values --------------------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r} is not text; put it in quotes")
    return value


def whole(value: Any) -> int:
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


def _memory(value: Any) -> str | int:
    return parse_memory(value if isinstance(value, str) else whole(value))


def _time(value: Any) -> timedelta:
    """A number in a file is read as it is written there: 30 has no unit, and 1:30, which is 90 in YAML, is no duration."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidArgument(f"{value!r} is not a duration; write it like 30s, 5m or 1h30m")
    return parse_duration(str(value))


def _class(value: Any) -> str:
    if value not in ("trial", "best-effort"):
        raise InvalidArgument(f"{value!r} is no class of jobs; it is trial or best-effort")
    return str(value)


def _exit_0(value: Any) -> str:
    if value not in ("stopped", "done"):
        raise InvalidArgument(f"{value!r} is unknown; it is stopped or done")
    return str(value)


def many(value: Any) -> list[Any]:
    """A list, or text with commas (or Slurm's colons) between the parts, or one thing."""
    parts = value if isinstance(value, list | tuple) else [value]
    split = (re.split("[,:]", part) if isinstance(part, str) else [part] for part in parts)
    return [part.strip() if isinstance(part, str) else part for each in split for part in each]


def ids(value: Any) -> list[int]:
    found = [whole(part) for part in many(value)]
    if any(job_id < 1 for job_id in found):
        raise InvalidArgument("ids of jobs are whole numbers from 1")
    return found


def _retry_on(value: Any) -> dict[str, Any]:
    """Exit codes and signals. A signal N is meant as 128+N, too: so it is reported where a shell stands between."""
    codes: set[int] = set()
    signals: set[int] = set()
    for part in many(value):
        if isinstance(part, str) and (number_ := getattr(signal.Signals, _signal_name(part), None)) is not None:
            codes.add(128 + number_)
            signals.add(int(number_))
        else:
            try:
                code = whole(part)
            except InvalidArgument:
                raise InvalidArgument(f"{part!r} is no exit code and no signal") from None
            if not 1 <= code <= 255:
                raise InvalidArgument(f"{code} is no exit code of a failure; those are 1 to 255")
            codes.add(code)
            if 128 < code <= 192:
                signals.add(code - 128)
    return {"retry_exit_codes": sorted(codes), "retry_exit_signals": sorted(signals)}


def _signal_name(word: str) -> str:
    return word.upper() if word.upper().startswith("SIG") else f"SIG{word.upper()}"


def _array(value: Any) -> dict[str, Any]:
    """N or N%M; also 0-15%4 as in Slurm, where it begins with 0."""
    match = re.fullmatch(r"(?:0-([0-9]+)|([0-9]+))(?:%([0-9]+))?", str(value).strip())
    if match is None or isinstance(value, bool):
        raise InvalidArgument(f"{value!r} is no array; write how many elements it has, as 10, or 10%2 for two at a time")
    size = int(match[1]) + 1 if match[1] else int(match[2])
    return {"array": size, "array_at_once": int(match[3] or 0)}


def _environment(value: Any) -> dict[str, str]:
    """NAME=VALUE each, or NAME for the value that it has here; or a mapping. The last of a name holds."""
    result: dict[str, str] = {}
    for setting in value if isinstance(value, list | tuple) else [value]:
        if isinstance(setting, dict):
            result |= _variables(setting)
            continue
        name, given, said = text(setting).partition("=")
        if not given:
            if name not in os.environ:
                raise InvalidArgument(f"{name} is not set here; write {name}=VALUE")
            said = os.environ[name]
        result[name] = said
    return result


def _export(value: Any) -> str | list[str]:
    return list(map(text, value)) if isinstance(value, list | tuple) else text(value)


def _variables(value: dict[Any, Any]) -> dict[str, str]:
    wrong = next(
        (name for name, said in value.items() if isinstance(said, bool) or not isinstance(said, str | int | float)), None
    )
    if wrong is not None:
        raise InvalidArgument(f"{wrong}: {value[wrong]!r} is not text; put it in quotes")
    return {str(name): str(said) for name, said in value.items()}


def _directory(value: Any) -> str:
    try:
        return os.path.normpath(Path.cwd() / text(value))
    except FileNotFoundError:
        if Path(value).is_absolute():
            return os.path.normpath(str(value))
        raise InvalidArgument("the folder that you are in is not there any more; go to another, or name one in full") from None


# ---- gangs -------------------------------------------------------------------------------------------------------------


def _groups(value: Any, each: dict[str, Any]) -> list[TaskGroup]:
    """A number of tasks, or groups of them. What a group does not say of its tasks is as for the whole job."""
    if not isinstance(value, list | tuple):
        return [TaskGroup(_count(value), **each)]
    if not value:
        raise InvalidArgument("a gang has at least one group of tasks")
    return [_group(_split(group) if isinstance(group, str) else group, each) for group in value]


def _split(group: str) -> dict[str, Any]:
    """ "4:gpus=1,cpus=4" """
    count, _, rest = group.partition(":")
    pairs = [part.partition("=") for part in rest.split(",") if part.strip()]
    wrong = [name for name, given, _ in pairs if not given]
    if wrong:
        raise InvalidArgument(f"{group!r}: {wrong[0]!r} has no value; write it like 4:gpus=1,cpus=4,memory=8GiB")
    return {"count": count.strip(), **{name.strip(): said.strip() for name, _, said in pairs}}


def _guarantee(value: Any) -> str:
    if value not in ("guaranteed", "overflow", "opportunistic"):
        raise InvalidArgument(f"{value!r} is no guarantee; it is guaranteed, overflow or opportunistic")
    return str(value)


def _within(value: Any) -> dict[str, Any]:
    """Levels, as rack or rack:preferred; in a file also in full, as {level: rack, preferred: true, task_group: 0}."""
    found = []
    for one in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(one, dict):
            level, _, how = text(one).partition(":")
            if how not in ("", "preferred") or one.endswith(":"):
                raise InvalidArgument(f"{one!r} is not a level, nor like rack:preferred")
            found.append(Within(level, bool(how)))
            continue
        wrong = [key for key in one if key not in ("level", "preferred", "task_group")]
        if wrong or "level" not in one:
            raise InvalidArgument(f"{one!r} is not a level, nor like {{level: rack, preferred: true, task_group: 0}}")
        group = one.get("task_group")
        found.append(Within(text(one["level"]), flag(one.get("preferred", False)), None if group is None else whole(group)))
    return {"within": found}


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{value!r} is not true or false")
    return value


_OF_GROUP: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "devices": ("devices", whole),
    "gpus": ("devices", whole),
    "cpus": ("cpus", number),
    "memory": ("memory", _memory),
    "command": ("command", lambda value: command(value)),
    "level": ("level", text),
}


def _group(said: Any, each: dict[str, Any]) -> TaskGroup:
    if not isinstance(said, dict):
        raise InvalidArgument(f"{said!r} is no group of tasks; it has a count, and what each of them needs")
    if "count" not in said:
        raise InvalidArgument("a group of tasks needs a count")
    own: dict[str, Any] = dict(each)
    for key, value in said.items():
        if key == "count":
            continue
        if key not in _OF_GROUP:
            raise InvalidArgument(unknown(str(key), ("count", *_OF_GROUP), "a group of tasks"))
        name, read = _OF_GROUP[key]
        try:
            own[name] = read(value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{key}: {error}") from error
    return TaskGroup(_count(said["count"]), **own)


def _count(value: Any) -> int:
    count = whole(value)
    if count < 1:
        raise InvalidArgument(f"{count} tasks are none; a gang has at least 1")
    return count


def command(value: Any) -> list[str]:
    """Words; numbers among them are written as they stand."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidArgument(f"{value!r} is not a list of words; write it like [python, train.py]: no shell splits it")
    wrong = [word for word in value if isinstance(word, bool) or not isinstance(word, str | int | float)]
    if wrong:
        raise InvalidArgument(f"{wrong[0]!r} is not a word; put it in quotes")
    return [str(word) for word in value]


def unknown(key: str, known: Iterable[str], of: str) -> str:
    """What is said of a key that is not there."""
    from difflib import get_close_matches

    close = get_close_matches(key, known := list(known), 1)
    return f"{key!r} is no key of {of}" + (f" (did you mean {close[0]!r}?)" if close else f"; those are {', '.join(known)}")


def _named(name: str, read: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {name: read(value)}


_READ: dict[str, Callable[[Any], dict[str, Any]]] = {
    "name": _named("name", text),
    "class": _named("job_class", _class),
    "cpus": _named("cpus", number),
    "memory": _named("memory", _memory),
    "devices": _named("devices", whole),
    "grace": _named("grace", _time),
    "env": _named("env", _environment),
    "export": _named("export", _export),
    "cwd": _named("working_directory", _directory),
    "priority": _named("priority", whole),
    "time_limit": _named("time_limit", _time),
    "estimate": _named("estimate", _time),
    "retries": _named("retries", whole),
    "retry_on": _retry_on,
    "tasks": _named("tasks", lambda value: value),
    "after_ok": _named("after_ok", ids),
    "after_any": _named("after_any", ids),
    "after_failed": _named("after_failed", ids),
    "array": _array,
    "vc": _named("vc", text),
    "guarantee": _named("guarantee", _guarantee),
    "pool": _named("pool", text),
    "model": _named("model", text),
    "pin": _named("pin", text),
    "cell": _named("cell", text),
    "within": _within,
    "lazy": _named("lazy", flag),
    "vacates": _named("vacates", flag),
    "exit_0_after_stop": _named("exit_0_after_stop", _exit_0),
}
KEYS = ("command", *_READ)
"""Of a job file, which may also say gpus for devices."""
