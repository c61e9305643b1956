"""The tasks of a gang, as a command line or a job file says them."""

from collections.abc import Callable
from typing import Any

from client_sdk.cli.option_values import command, memory, number, text, unknown, whole_number
from client_sdk.errors import InvalidArgument
from client_sdk.models import TaskGroup


def groups(value: Any, each: dict[str, Any]) -> list[TaskGroup]:
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


_OF_GROUP: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "devices": ("devices", whole_number),
    "gpus": ("devices", whole_number),
    "cpus": ("cpus", number),
    "memory": ("memory", memory),
    "command": ("command", command),
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
    count = whole_number(value)
    if count < 1:
        raise InvalidArgument(f"{count} tasks are none; a gang has at least 1")
    return count
