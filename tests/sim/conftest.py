"""What several tests of the simulator share."""

import os
import sys
from collections.abc import Iterator

import pytest

from tests.judged_states import judged_steps
from tests.thorough import LONG

WORKERS = 2


def environment() -> dict[str, str]:
    """For a process that is to find the same modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Dask cluster of worker processes on this machine."""
    from scheduler_service.sim.experiments import dask_runner

    assert dask_runner.CONNECT_LIMIT
    import dask
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.allowed-failures": 0,
        # A worker that dies is started again; that may take longer than the 15 s in which it would be given up.
        "distributed.deploy.lost-worker-timeout": "10 minutes",
        "temporary-directory": str(tmp_path_factory.mktemp("dask")),
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=":0") as made,
    ):
        yield made.scheduler_address


@pytest.fixture(scope="package", autouse=True)
def beginnings_judged() -> Iterator[None]:
    """The rules of the database judge the beginning of each simulation; `make test-long` has all of it judged."""
    with judged_steps(None if LONG else 100):
        yield
