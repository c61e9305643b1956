"""Ebb's SDK: jobs and nodes of a scheduler (`Client`, `AsyncClient`), and checkpoints inside a job (`client_sdk.training`).

The package has the clients, the exceptions of `client_sdk.errors`, and the values that `client_sdk.models` lists.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client_sdk._functions.executors import AsyncFunctionFuture as AsyncFunctionFuture
    from client_sdk._functions.executors import FunctionFuture as FunctionFuture
    from client_sdk._values.job_options import Alternative as Alternative
    from client_sdk._values.job_options import JobOptions as JobOptions
    from client_sdk.aio import AsyncClient as AsyncClient
    from client_sdk.client import Client as Client
    from client_sdk.errors import *  # noqa: F403
    from client_sdk.models import *  # noqa: F403

if not TYPE_CHECKING:  # to a type checker, a module with this function has every name
    # A training script that imports `client_sdk.training` does not need the clients, which take longer to import than that.
    _MODULES = ("aio", "client", "errors", "models")
    _HOMES = {
        "Alternative": "_values.job_options",
        "AsyncClient": "aio",
        "AsyncFunctionFuture": "_functions.executors",
        "Client": "client",
        "FunctionFuture": "_functions.executors",
        "JobOptions": "_values.job_options",
    }

    def __getattr__(name):
        if name in _MODULES:
            return _module(name)
        if name == "__all__":
            found = sorted({*_HOMES, *_exceptions(), *_module("models").__all__})
        elif name in _HOMES:
            found = getattr(_module(_HOMES[name]), name)
        elif name[:1].isupper() and name in _exceptions():  # a name in lower case may be a module that is being imported
            found = getattr(_module("errors"), name)
        elif name[:1].isupper() and name in _module("models").__all__:
            found = getattr(_module("models"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *_MODULES, *__getattr__("__all__")})

    def _module(name):
        return import_module(f"{__name__}.{name}")

    def _exceptions():
        errors = _module("errors")
        return [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.EbbError)]
