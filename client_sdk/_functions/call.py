"""Calls the function of a job and stores its result. A copy of this file is sent with each function and is run on the node by
its path: it needs the standard library, `cloudpickle`, and what the function itself needs.

In the same directory are `function.pkl`, a pickle of (function, arguments, keyword arguments), and `python.json`, the version
that made it. The result is a pickle of a dict of bytes and texts, which can be read even where the value in it cannot.
"""

import json
import os
import pickle
import sys
import traceback

RAISED = 1
"""The exit code of a job whose function raised: there is a result, which says so."""


def main(folder: str) -> int:
    sys.path[0] = os.getcwd()  # noqa: PTH109 - modules of the snapshot, as if the function were in a script there
    outcome = execute_call(folder)
    path = os.environ["EBB_RESULT_FILE"]
    with open(path + ".new", "wb") as file:  # noqa: PTH123
        pickle.dump(outcome, file)
    os.replace(path + ".new", path)  # noqa: PTH105
    if outcome["good"]:
        with open(os.environ["EBB_DONE_FILE"], "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(str(os.getpid()))
        return 0
    sys.stderr.write(str(outcome["traceback"] or f"{outcome['message']}\n"))
    return RAISED


def execute_call(folder: str) -> dict[str, object]:
    """Whether it went well, and the value, or the exception and its traceback."""
    with open(f"{folder}/python.json", encoding="ascii") as file:  # noqa: PTH123
        made_by = json.load(file)
    if made_by != list(sys.version_info[:2]):
        theirs, ours = (".".join(map(str, version)) for version in (made_by, sys.version_info[:2]))
        return _bad(
            f"the function was submitted by Python {theirs}, and {sys.executable} on the node is Python {ours}; the two must "
            "be the same: name an environment (venv, conda) or a program (python) that is"
        )
    try:
        import cloudpickle
    except ImportError:
        return _bad(f"{sys.executable} has no package cloudpickle, by which functions are sent; install it there")
    try:
        with open(f"{folder}/function.pkl", "rb") as file:  # noqa: PTH123
            function, args, kwargs = cloudpickle.load(file)
        value = function(*args, **kwargs)
    except Exception as error:
        return _describe_error(error, cloudpickle)
    try:
        return {"good": True, "value": cloudpickle.dumps(value)}
    except Exception as error:
        return _bad(f"the result, of type {type(value).__name__}, cannot be pickled: {error}")


def _describe_error(error: Exception, cloudpickle: object) -> dict[str, object]:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:  # what is of this file explains nothing
        trace = trace.tb_next
    told = "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
    said = _bad(f"{type(error).__name__}: {error}", told)
    try:
        said["error"] = cloudpickle.dumps(error)  # type: ignore[attr-defined]
        pickle.loads(said["error"])  # type: ignore[arg-type]  # some can be written, and not read
    except Exception:
        said["error"] = b""
    return said


def _bad(message: str, told: str = "") -> dict[str, object]:
    return {"good": False, "error": b"", "message": message, "traceback": told}


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
