"""Ctrl-C while `ebb` is being loaded, which takes 0.2 s. Each process stops at an import, says so, and waits for the signal."""

import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))
SCRIPT = entry_points(group="console_scripts", name="ebb")["ebb"].value.replace(":", " import ")
STOPS = """
import os, sys, threading

class Stop:
    def find_spec(name, path=None, target=None):
        if name == os.environ["STOP_AT"]:
            os.write(1, b"here\\n")
            threading.Event().wait(60)

sys.meta_path.insert(0, Stop)
"""


@pytest.mark.parametrize("module", ["client_sdk", "client_sdk.models", "click", "client_sdk.cli.submit"])
def test_it_ends_at_once_with_130_and_no_traceback(module: str) -> None:
    code = f"{STOPS}\nfrom {SCRIPT}\nsys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": PATHS, "STOP_AT": module}
    command = [sys.executable, "-c", code, "--version"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


def test_once_it_is_loaded_the_commands_hear_of_it() -> None:
    """As `ebb wait` must, which says then that the job goes on."""
    code = f"""
import signal, sys
from {SCRIPT}
import client_sdk.cli
client_sdk.cli.main = lambda: signal.raise_signal(signal.SIGINT)
try:
    main()
except KeyboardInterrupt:
    sys.exit(7)
"""
    assert ended(code) == (7, "", "")


def test_while_options_are_read() -> None:
    code = f"""
import signal, sys
from {SCRIPT}
import click
import client_sdk.cli.app
click.Group.make_context = lambda *args, **kwargs: signal.raise_signal(signal.SIGINT)
main()
"""
    assert ended(code) == (130, "", "")


def ended(code: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": PATHS}, check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr
