"""Converts the options of `ebb submit` and the keys of a job file to the options of `Client.submit`."""

import math
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from client_sdk._values.job_options import Alternative, JobOptions, Jobs, Time
from client_sdk.cli.option_values import (
    command,
    flag,
    ids,
    memory,
    names,
    number,
    one_of,
    split_parts,
    text,
    time,
    unknown,
    whole_number,
)
from client_sdk.cli.task_groups import groups
from client_sdk.errors import InvalidArgument
from client_sdk.models import Within

Given = Mapping[str, Any]
"""Values by job file key. From the command line a value is text or a number; from a file it can be a list or mapping, too."""


def job_options(given: Given, where: Callable[[str], str]) -> JobOptions:
    """Return the options. Raises InvalidArgument, with the name that `where` gives to the wrong key."""
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
            found["tasks"] = groups(found["tasks"], each)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where('tasks')}: {error}") from error
    return cast(JobOptions, found)


def _devices(value: Any) -> float:
    """A whole number, or a fraction of one device."""
    count = number(value)
    if not (0 < count < 1 or (math.isfinite(count) and count == int(count))):
        raise InvalidArgument(f"{value} is not a whole number, nor a fraction of one device, such as 0.5")
    return count if 0 < count < 1 else int(count)


def _retry_on(value: Any) -> dict[str, Any]:
    """Parse exit codes and signals. A signal N includes exit code 128+N, which a shell reports if it runs the program."""
    codes: set[int] = set()
    signals: set[int] = set()
    for part in split_parts(value):
        if isinstance(part, str) and (number_ := getattr(signal.Signals, _signal_name(part), None)) is not None:
            codes.add(128 + number_)
            signals.add(int(number_))
        else:
            try:
                code = whole_number(part)
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
        found.append(
            Within(text(one["level"]), flag(one.get("preferred", False)), None if group is None else whole_number(group))
        )
    return {"within": found}


def _labels(value: Any) -> dict[str, str]:
    """NAME=VALUE each, with commas between them; or a mapping."""
    result: dict[str, str] = {}
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, dict):
            result |= _variables(part)
            continue
        for pair in text(part).split(","):
            name, given, said = pair.strip().partition("=")
            if not given:
                raise InvalidArgument(f"{pair!r} is no label; write it like zone=a")
            result[name] = said
    return result


def _make_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _alternative(value: Any) -> dict[str, Any]:
    """Another configuration: of --or "devices=2 model=V100", of a file {devices: 2, model: V100}."""
    pairs = _split(value) if isinstance(value, str) else value
    if not isinstance(pairs, dict):
        raise InvalidArgument(f"{value!r} is not like {{devices: 2, model: V100}}")
    found: dict[str, Any] = {}
    for said, one in pairs.items():
        key = "devices" if said == "gpus" else str(said).replace("-", "_")
        if key not in _OF_ALTERNATIVE:
            raise InvalidArgument(unknown(key, _OF_ALTERNATIVE, "an alternative"))
        try:
            found |= _OF_ALTERNATIVE[key](one)
        except InvalidArgument as error:
            raise InvalidArgument(f"{said}: {error}") from error
    return found


def _split(value: str) -> dict[str, Any]:
    """Words as a shell has them, each NAME=VALUE. A name that comes again adds to a list."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise InvalidArgument(f"{value!r}: {error}") from error
    found: dict[str, Any] = {}
    for word in words:
        name, given, said = word.partition("=")
        if not given:
            raise InvalidArgument(f"{word!r} has no value; write it like --or 'devices=2 model=V100 estimate=3h'")
        found[name] = [*_make_list(found[name]), said] if name in found else said
    return found


def _option_reader(name: str, read: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {name: read(value)}


_OF_TYPE: Mapping[Any, Callable[[Any], Any]] = {
    str: text,
    str | None: text,
    int: whole_number,
    float: number,
    bool: flag,
    str | int: memory,
    Time | None: time,
    Jobs: ids,
    str | Iterable[str]: names,
}
"""How an option of this type is read, under its name."""
_OWN: dict[str, tuple[str, Callable[[Any], dict[str, Any]]] | None] = {
    "job_class": ("class", _option_reader("job_class", one_of("trial", "best-effort", wrong="is no class of jobs"))),
    "devices": ("devices", _option_reader("devices", _devices)),
    "share": ("share", _option_reader("share", one_of("exclusive", "packed", "sliced", wrong="is unknown"))),
    "env": ("env", _option_reader("env", _environment)),
    "export": ("export", _option_reader("export", _export)),
    "working_directory": ("cwd", _option_reader("working_directory", _directory)),
    "retry_exit_codes": ("retry_on", _retry_on),
    "retry_exit_signals": None,
    "tasks": ("tasks", _option_reader("tasks", lambda value: value)),
    "array": ("array", _array),
    "array_at_once": None,
    "guarantee": (
        "guarantee",
        _option_reader("guarantee", one_of("guaranteed", "overflow", "opportunistic", wrong="is no guarantee")),
    ),
    "node_labels": ("node_labels", _option_reader("node_labels", _labels)),
    "within": ("within", _within),
    "exit_0_after_stop": (
        "exit_0_after_stop",
        _option_reader("exit_0_after_stop", one_of("stopped", "done", wrong="is unknown")),
    ),
    "snapshot": ("snapshot", _option_reader("snapshot", lambda value: value if isinstance(value, bool) else _directory(value))),
    "venv": ("venv", _option_reader("venv", text)),
    "conda": ("conda", _option_reader("conda", text)),
    "alternatives": ("alternatives", lambda value: {"alternatives": list(map(_alternative, _make_list(value)))}),
}
"""The key of an option, and how it is read, where the option's name and type do not say so; None: another key says it, too."""
_EACH = (
    _OWN[name] if name in _OWN else (name, _option_reader(name, _OF_TYPE[kind]))
    for name, kind in JobOptions.__annotations__.items()
)
_READ: dict[str, Callable[[Any], dict[str, Any]]] = dict(found for found in _EACH if found is not None)
_OF_ALTERNATIVE: dict[str, Callable[[Any], dict[str, Any]]] = {
    name: _READ[name] for name in Alternative.__annotations__ if name != "command"
} | {
    "devices": _option_reader("devices", whole_number),
    "command": _option_reader("command", lambda value: shlex.split(value) if isinstance(value, str) else command(value)),
}
KEYS = ("command", *_READ)
"""The keys of a job file, which may also use gpus for devices."""
