"""A function as it is sent, and its result as it is read."""

import json
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from client_sdk.errors import FailedPrecondition, FunctionFailed, InvalidArgument
from ebb_common.archive import Archive, pack

FOLDER = ".ebb-call"
"""In the working directory of the job."""
COMMAND = f"{FOLDER}/call.py"


def cloudpickle() -> Any:
    """The package. Raises FailedPrecondition."""
    try:
        import cloudpickle as found
    except ImportError:
        raise FailedPrecondition(
            "functions are sent by the package cloudpickle, which is not installed here; install ebb-cluster[functions]"
        ) from None
    return found


def pack_function(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Archive:
    """Raises InvalidArgument for what cannot be pickled."""
    if not callable(function):
        raise InvalidArgument(f"{function!r} is no function; submit takes the function and then its arguments")
    try:
        data = cloudpickle().dumps((function, tuple(args), dict(kwargs)))
    except FailedPrecondition:
        raise
    except Exception as error:  # whatever the pickling of somebody's object raises
        raise InvalidArgument(f"{name_of(function)} or an argument of it cannot be pickled: {error}") from error
    script = resources.files("client_sdk._functions").joinpath("call.py").read_bytes()
    version = json.dumps(sys.version_info[:2]).encode()
    files = {"function.pkl": data, "call.py": script, "python.json": version}
    return pack(Path(), (), [(f"{FOLDER}/{name}", content) for name, content in files.items()])


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


class RemoteTraceback(Exception):
    """The traceback of an exception on the job's node; it is the cause of the exception that the future raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def value_of(data: bytes, what: str) -> Any:
    """The value that a function returned. Raises what it raised, or FunctionFailed where that cannot be read here."""
    outcome = pickle.loads(data)
    if outcome["good"]:
        try:
            return pickle.loads(outcome["value"])
        except Exception as error:  # a class that is not here, for example
            raise FunctionFailed(f"the result of {what} cannot be read here: {error}") from error
    try:
        raised = pickle.loads(outcome["error"]) if outcome["error"] else None
    except Exception:
        raised = None
    cause = RemoteTraceback(outcome["traceback"]) if outcome["traceback"] else None
    if isinstance(raised, Exception):
        raise raised from cause
    raise FunctionFailed(f"{what} failed: {outcome['message']}") from cause
