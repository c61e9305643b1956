"""What every test process needs before anything else."""

import os
import signal

import pytest
from hypothesis import settings

from tests.thorough import LONG, examples

# A shell that runs us in the background has us ignore Ctrl-C, and every process that we start would: those that are
# tested with it must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Whoever runs us may have a scheduler of their own.
for name in ("EBB_ADDRESS", "EBB_TOKEN", "EBB_TOKEN_FILE", "EBB_TLS_CA", "EBB_TLS_CERT", "EBB_TLS_KEY", "EBB_VC"):
    os.environ.pop(name, None)

# Nothing here forks without exec. gRPC's fork handlers, on by default, can hang the process that forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Agents make control groups for their runs where they can. Here they can where the tests of that have made them a place;
# elsewhere they would leave folders in the hierarchy of whoever runs us.
os.environ.setdefault("EBB_AGENT_CONTROL_GROUPS", "off")

# How long an example takes says how busy the machine is. The same examples each time: a change is judged by what it did.
settings.register_profile("ebb", deadline=None, max_examples=examples(30), derandomize=not LONG, database=None)
settings.load_profile("ebb")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """In a worker of xdist, a test that takes too long fails. By the method of pyproject.toml its process would end itself, and
    what that says of it goes to a worker's standard output, which nobody reads: all that is shown is that a worker crashed."""
    if hasattr(config, "workerinput"):
        config.option.timeout_method = "signal"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take longest come first, so that workers share out short ones in the end."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)
