"""The bench of 2,000 agents, with 20: what it measures does happen."""

import asyncio
import signal
from pathlib import Path

import pytest

from benchmarks import agents_2000
from tests.harness.site import quick_cluster


@pytest.mark.long
def test_all_agents_connect_again_and_no_submit_fails(tmp_path: Path) -> None:
    size = agents_2000.Size(agents=20, waiting=50, steady=0.4, cuts=1, restarts=(signal.SIGKILL,))
    with quick_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        figures = asyncio.run(agents_2000.measure(cluster, size))
    values = {figure["metric"]: figure["value"] for figure in figures}
    assert values["20 agents connect again at once"] > 0
    assert values["first start with 50 jobs, after SIGKILL"] > 0
    assert values["  failed"] == 0
