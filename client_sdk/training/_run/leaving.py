"""Ends the process of a program that moves to another node, without taking the interpreter apart.

The job makes no progress until this process is gone. With PyTorch, Python takes about a second to take its modules apart, for
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


def end_after_exit_handlers(status: int) -> None:
    """Call it before raising SystemExit(status). If the program registers more exit handlers after that, or fails on its way
    out, the interpreter ends the process as ever."""
    failed_before = getattr(sys, "last_value", None)

    def end() -> None:
        if atexit._ncallbacks() > known or getattr(sys, "last_value", None) is not failed_before:
            return  # handlers that came later have run already, and would run again
        atexit.unregister(end)
        try:
            atexit._run_exitfuncs()
        finally:
            _write_open_files()
            os._exit(status)

    atexit.register(end)
    known = atexit._ncallbacks()


def _write_open_files() -> None:
    opened = [thing for thing in gc.get_objects() if issubclass(type(thing), io.IOBase)]
    text = [file for file in opened if isinstance(file, io.TextIOBase)]  # first, as they write to others
    for file in (*text, *opened, *filter(None, (sys.stdout, sys.stderr))):
        with suppress(Exception):  # one that is closed, or cannot be written: there is nobody to tell
            file.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # those of C
