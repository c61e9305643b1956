"""A script that runs in a process that was warm finds what it would find in one of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import ebb_inject
from tests.agent.conftest import until

WARM = f"{ebb_inject.FOLDER}/ebb_hook/warm.py"
LOOK = """
import json, os, pickle, sys, threading
class Made:
    pass
main = sys.modules["__main__"]
print(json.dumps({
    "name": __name__, "file": __file__, "argv": sys.argv, "path0": sys.path[0], "cwd": os.getcwd(), "doc": __doc__,
    "package": __package__, "spec": getattr(__spec__, "name", None),
    "pickled": type(pickle.loads(pickle.dumps(Made()))).__module__,
    "main": main.__dict__ is globals(), "same": main.Made is Made, "thread": threading.current_thread().name,
    "value": os.environ.get("VALUE"), "options": os.environ.get("EBB_WARM_OPTIONS"), "utf8": sys.flags.utf8_mode,
    "unbuffered": sys.stdout.write_through, "ours": sorted(n for n in globals() if n in ("PAUSE", "main")),
    "warnings": sys.warnoptions, "hook": any("ebb_hook" in p for p in sys.path),
}))
"""


class Warm:
    """A process that is warm, in a run's folder."""

    def __init__(self, folder: Path, *arguments: str, options: tuple[str, ...] = (), modules: tuple[str, ...] = ()) -> None:
        self.folder = folder / "run" / "warm"
        self.folder.mkdir(parents=True)
        (self.folder / "modules").write_text("\n".join(modules))
        environment = _clean() | {"EBB_RUN_DIR": str(self.folder.parent), "EBB_WARM_OPTIONS": json.dumps(options)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        command = [sys.executable, *options, WARM, *arguments]
        self.process = subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        until((self.folder / "warmed").exists)

    def go(self, **variables: str) -> tuple[int, str, str]:
        (self.folder / "go.new").write_text(json.dumps(variables))
        (self.folder / "go.new").rename(self.folder / "go.json")
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def _clean() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("EBB_", "PYTHON"))}


def cold(folder: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    environment = _clean() | variables
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("look.py", "a", "--b"), ("sub/look.py",), ("-m", "sub.look", "x"), ("-m", "pack", "y"), ("sub",)],
    ids=["script", "in a folder", "module", "package", "a folder with __main__"],
)
def test_it_is_as_if_the_interpreter_had_started_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for name in ("look.py", "sub/look.py", "sub/__main__.py", "pack/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(LOOK)
    (tmp_path / "pack" / "__init__.py").touch()
    expected = cold(tmp_path, *arguments, VALUE="new")
    assert expected[0] == 0, expected[2]
    assert Warm(tmp_path, *arguments).go(VALUE="new") == expected


def test_options_of_the_interpreter_hold(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    options = ("-u", "-X", "utf8", "-W", "error")
    assert Warm(tmp_path, "look.py", options=options).go() == cold(tmp_path, *options, "look.py")


def test_what_is_named_is_imported_before_the_script_begins(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text("import sys; print('wave' in sys.modules, 'chunk_is_none_of_ours' in sys.modules)")
    warm = Warm(tmp_path, "look.py", modules=("wave", "chunk_is_none_of_ours"))
    assert warm.go() == (0, "True False\n", "")


@pytest.mark.parametrize(
    "script",
    [
        "def f():\n    raise KeyError('x')\nf()\n",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('why')",
        "def f(:\n",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import atexit; atexit.register(print, 'bye'); VALUE = 3; atexit.register(lambda: print(VALUE))",
        "import missing_module_of_nobody",
    ],
    ids=["exception", "status", "message", "syntax", "signal", "atexit", "import"],
)
def test_it_ends_as_it_would(tmp_path: Path, script: str) -> None:
    (tmp_path / "end.py").write_text(script)
    expected = cold(tmp_path, "end.py")
    status, out, err = Warm(tmp_path, "end.py").go()
    assert (status, out) == expected[:2]
    assert err == expected[2]


def test_it_has_its_own_signals_while_it_waits(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    warm = Warm(tmp_path, "look.py")
    warm.process.send_signal(signal.SIGTERM)
    warm.process.communicate(timeout=20)
    assert warm.process.returncode == -signal.SIGTERM


def test_processes_that_it_starts_find_its_script(tmp_path: Path) -> None:
    """As the workers of a DataLoader that are spawned."""
    (tmp_path / "work.py").write_text(
        "import multiprocessing\ndef double(x):\n    return 2 * x\nif __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        print(pool.map(double, [1, 2]))\n"
    )
    assert Warm(tmp_path, "work.py").go() == (0, "[2, 4]\n", "")
