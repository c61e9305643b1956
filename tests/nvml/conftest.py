"""A machine with GPUs for each test that asks for one: the shim in the driver's place."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.devices.reading import Reading
from tests.nvml.shim import SOURCE, Shim

ROOT = Path(__file__).parents[2]
ZIG = ROOT / "build" / "zig"
COMPILERS = ("cc", "gcc", "clang")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that wants a compiler may have to wait for one to be fetched: 100 MB."""
    if not any(map(shutil.which, COMPILERS)):
        for item in items:
            if "plug_in" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.timeout(900))


def compiler() -> tuple[list[str], dict[str, str]]:
    """A C compiler, and what it needs in its environment. Where the system has none: the one in the ziglang wheel."""
    for name in COMPILERS:
        if (found := shutil.which(name)) is not None:
            return [found], dict(os.environ)
    ZIG.parent.mkdir(exist_ok=True)
    with ZIG.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if not ZIG.exists():
            part = ZIG.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            uv = Path(sys.executable).with_name("uv")
            locked = Path(__file__).with_name("requirements.lock")
            install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", part]
            subprocess.run([*install, "--require-hashes", "-r", locked], check=True)
            part.rename(ZIG)
    cache = str(ZIG.with_suffix(".cache"))
    environment = {"PYTHONPATH": str(ZIG), "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    return [sys.executable, "-m", "ziglang", "cc"], {**os.environ, **environment}


def build(directory: Path, *flags: str) -> Path:
    command, environment = compiler()
    library = directory / "libnvidia-ml.so.1"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, *warnings, "-O2", "-fPIC", "-shared", *flags, "-o", library, SOURCE], env=environment, check=True)
    return library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a driver that lacks what came after 2020."""
    return build(tmp_path_factory.mktemp("old-driver"), "-DOLD_DRIVER")


PlugIn = Callable[..., Shim]


@pytest.fixture
def plug_in(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlugIn:
    """This machine has these GPUs from now on, for every process that is started."""

    def plug_in(reading: Reading, driver: Path = library) -> Shim:
        shim = Shim(tmp_path / "machine", driver)
        shim.load(reading)
        for name, value in shim.environment.items():
            monkeypatch.setenv(name, value)
        return shim

    return plug_in
