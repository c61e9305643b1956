"""How a program ends that has saved its work because it was asked to: its exit status, and a quick end of the process.

Somebody waits for the place of this process. With PyTorch, Python takes more than a second to take its modules apart, for
memory that the kernel frees in a moment. So the process ends as soon as its exit handlers have run and its open files are
written. Objects that are left are not deleted, which Python does not promise either.
"""

import atexit
import ctypes
import gc
import io
import os
import sys
from contextlib import suppress
from typing import NoReturn

OBEYED = 143
"""Exit status of a program that saved and exited because it was asked to: the one that a shell reports for SIGTERM (128 + 15).

It is not 0, so that `train.py && evaluate.py` does not continue as if the training were complete.
"""

RESIZED = 200
"""Exit status of a program that saved and exited because its job is resized. It is not a shell's status for a signal, and
sysexits.h does not define it."""


def end_after_exit_handlers(status: int) -> NoReturn:
    """Raises SystemExit(status). If the interpreter ends by it, the process ends after its exit handlers. A program that
    catches it, fails on its way out, or registers more exit handlers there, ends as ever."""
    leaving = _Leaving(status)

    def end() -> None:
        if not leaving.ends_interpreter or atexit._ncallbacks() > known:
            return  # handlers that came later have run already, and would run again
        atexit.unregister(end)
        try:
            atexit._run_exitfuncs()
        finally:
            _write_open_files()
            os._exit(status)

    atexit.register(end)
    known = atexit._ncallbacks()
    raise leaving


class _Leaving(SystemExit):
    """The interpreter reads the status of the exception by which it ends when no frame is left."""

    ends_interpreter = False

    @property
    def code(self) -> int:  # type: ignore[override] # a value elsewhere
        if sys._getframe().f_back is None:
            self.ends_interpreter = True
        status: int = self.args[0]
        return status


def _write_open_files() -> None:
    opened = [thing for thing in gc.get_objects() if issubclass(type(thing), io.IOBase)]
    text = [file for file in opened if isinstance(file, io.TextIOBase)]  # first, as they write to others
    for file in (*text, *opened, *filter(None, (sys.stdout, sys.stderr))):
        with suppress(Exception):  # one that is closed, or cannot be written: there is nobody to tell
            file.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # those of C
