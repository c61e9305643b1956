"""Messages for missing extras of the package `ebb-cluster`. Without extras it provides `client_sdk.training`."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

_OWN = {"client_sdk", "ebb", "ebb_common", "node_agent", "scheduler_service"}


def advice(missing: ModuleNotFoundError, what: str, extra: str) -> str | None:
    """Return what to install for a missing module. None if it is Python's or Ebb's own: no extra installs these."""
    if (missing.name or "").split(".")[0] in sys.stdlib_module_names | _OWN:
        return None
    return f"{what} needs {missing.name}, which this installation lacks: pip install 'ebb-cluster[{extra}]'"


def main_of(module: str, command: str, extra: str) -> Callable[[], object]:
    """The function `main` of the module. Ends the process with 1 and says which extra is missing, if that is why the module
    cannot be imported."""
    try:
        main: Callable[[], object] = import_module(module).main
    except ModuleNotFoundError as missing:
        if (said := advice(missing, command, extra)) is None:
            raise
        sys.exit(said)
    return main


def require(module: str, what: str, extra: str) -> None:
    """Raises ModuleNotFoundError, which says what to install, if the module is missing."""
    if module not in sys.modules and find_spec(module) is None:
        missing = ModuleNotFoundError(name=module)
        raise ModuleNotFoundError(advice(missing, what, extra), name=module)
