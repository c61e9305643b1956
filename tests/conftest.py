"""What every test process needs before anything else."""

import gc
import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests.judged_states import watch_states
from tests.thorough import LONG, examples
from tests.training_packages import training_packages as training_packages

watch_states()

# A shell that runs us in the background has us ignore Ctrl-C, nohup has us ignore SIGHUP, and every process that we start
# would: those that are tested with them must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Whoever runs us may have a scheduler of their own.
for name in ("EBB_ADDRESS", "EBB_TOKEN", "EBB_TOKEN_FILE", "EBB_TLS_CA", "EBB_TLS_CERT", "EBB_TLS_KEY", "EBB_VC"):
    os.environ.pop(name, None)

# Nothing here forks without exec. gRPC's fork handlers, on by default, can hang the process that forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Agents make control groups for their runs where they can. Here they can where the tests of that have made them a place;
# elsewhere they would leave folders in the hierarchy of whoever runs us.
os.environ.setdefault("EBB_AGENT_CONTROL_GROUPS", "off")

# How long an example takes says how busy the machine is. The same examples each time: a change is judged by what it did.
settings.register_profile("ebb", deadline=None, max_examples=examples(15), derandomize=not LONG, database=None)
settings.load_profile("ebb")


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, object, object]:
    """The alarm comes again and again: Hypothesis takes the first for a failure of its example, and tries that once more."""
    done = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout)
    return done


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """All modules and tests are loaded, and stay: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker of xdist begins with a part of one piece. So each piece gets its share of the end-to-end tests, which wait
    most of their time and come first, and of the modules of all folders."""
    for item in items:
        if "training_packages" in getattr(item, "fixturenames", ()):
            item.add_marker("training")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    modules = sorted({item.path for item in items}, key=lambda path: ("e2e" not in path.parts, path))
    place = {path: (number % workers, number) for number, path in enumerate(modules)}
    items.sort(key=lambda item: place[item.path])
