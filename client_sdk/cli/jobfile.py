"""Job files: what `ebb submit` is told, in YAML."""

from typing import IO, Any

from client_sdk.cli import words
from client_sdk.errors import InvalidArgument


def read(file: IO[str]) -> dict[str, Any]:
    """The keys and values of a job file. Raises InvalidArgument, which names what is wrong."""
    import yaml

    try:
        found = yaml.safe_load(file)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise InvalidArgument(f"{file.name}{place}: it is not YAML: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(found, dict):
        raise InvalidArgument(f"{file.name}: a job file has keys and values, such as `command: [python, train.py]`")
    known: dict[str, Any] = {}
    for said, value in found.items():
        key = "devices" if said == "gpus" else str(said).replace("-", "_")
        if key in known:
            raise InvalidArgument(f"{file.name}: {said!r} is said twice, as {key!r}")
        known[key] = value
        if key not in words.KEYS:
            raise InvalidArgument(f"{file.name}: {words.unknown(key, words.KEYS, 'a job file')}")
    return known
