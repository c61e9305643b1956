"""A warm process: the interpreter runs and the modules of the job are imported before the script may begin.

The agent starts `python [OPTIONS] warm.py SCRIPT ARGUMENTS...` (or `-m MODULE ARGUMENTS...`) where a job is to continue, while
the job still runs on another node. In the folder `warm` of the run, `modules` lists what to import. The process creates
`warmed` and waits for `go.json`, which has the environment variables that were not known before. Then it runs the script as
`python SCRIPT ARGUMENTS...` would: as `__main__`, with the same `sys.argv` and `sys.path`.

If anything goes wrong before the script begins, the process executes the plain command, so that the job starts cold.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False) and sys.path:
    del sys.path[0]  # the folder of this file, whose modules are not the script's

import importlib
import json
import os
import time
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE = 0.005
"""Seconds between two checks for `go.json`: half of it is lost when a job moves, and checking takes 1/1000 of a core."""


def main() -> None:
    folder, arguments = f"{os.environ['EBB_RUN_DIR']}/warm", sys.argv[1:]
    try:
        _import(folder)
        with open(f"{folder}/warmed", "w", encoding="ascii"):
            pass
        os.environ.update(_wait_for_variables(folder))
        run = _prepare_script(arguments)
    except Exception as error:
        sys.stderr.write(f"ebb: the process cannot be warmed, and starts cold: {type(error).__name__}: {error}\n")
        run = None
    if run is None:
        os.execv(sys.executable, [sys.executable, *_options(), *arguments])
    try:
        run()
    except Exception as error:
        traceback = error.__traceback__
        ours = __file__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == ours:
            traceback = traceback.tb_next  # hide this file from the script's traceback
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        sys.exit(1)


def _import(folder: str) -> None:
    """Import the modules. One that fails is left to the script, which may no longer need it."""
    with open(f"{folder}/modules", encoding="ascii") as file:
        names = file.read().split()
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            continue


def _wait_for_variables(folder: str) -> dict[str, str]:
    """Wait for the variables that the agent has named, and return them."""
    path = f"{folder}/go.json"
    while not os.path.exists(path):
        time.sleep(PAUSE)
    with open(path, encoding="utf-8") as file:
        return {str(name): str(value) for name, value in json.load(file).items()}


def _options() -> list[str]:
    """Return the options with which the interpreter was started."""
    options: list[str] = json.loads(os.environ.pop("EBB_WARM_OPTIONS", "[]"))
    return options


def _prepare_script(arguments: list[str]) -> Callable[[], None] | None:
    """Return a function that runs the script as `__main__`; None if only the interpreter itself can run it, like an archive."""
    if arguments[0] == "-m":
        name = arguments[1]
        if not name or not all(part.isidentifier() for part in name.split(".")):
            return None
        os.environ.pop("EBB_WARM_OPTIONS", None)
        import runpy

        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, os.getcwd())
        sys.argv = arguments[1:]
        sys.modules["__main__"] = types.ModuleType("__main__")
        runner: Any = runpy.__dict__["_run_module_as_main"]  # what `python -m` calls

        def run_module() -> None:
            runner(name)

        return run_module
    script = arguments[0]
    if not os.path.isfile(script):
        return None
    path = os.path.abspath(script)
    with open(script, "rb") as file:
        source = file.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except SyntaxError:
        return None  # the interpreter itself reports this best
    os.environ.pop("EBB_WARM_OPTIONS", None)
    module = types.ModuleType("__main__")
    from importlib.machinery import SourceFileLoader

    module.__dict__.update(
        __file__=path, __cached__=None, __spec__=None, __loader__=SourceFileLoader("__main__", path), __package__=None
    )
    sys.modules["__main__"] = module
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    sys.argv = arguments

    def run_script() -> None:
        exec(code, module.__dict__)

    return run_script


if __name__ == "__main__":
    main()
