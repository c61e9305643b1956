"""The inputs of the evidence: simulated sites, random histories with restarts, and recordings of the service.

Each scenario is small, and fixed by its seed. Together they reach each policy, gangs, virtual clusters, exchange, quota,
backfill, failures of nodes, and what users and operators ask.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scheduler_service.core.messages import Step
from scheduler_service.run.recording.replay import Summary, taken_again
from scheduler_service.sim.experiments.cases import Case, simulate
from tests.core import driver
from tests.evidence.digests import Evidence
from tests.policies.test_restarts_random import History
from tests.run.recorded import again

RECORDINGS = Path(__file__).parent / "recordings"
NODES = [{"nodes": 6, "cpus": 32, "memory_gib": 256, "gpus": 8, "tree": {"socket": 2, "switch": 2}}]
GPUS = "gpu-2x2x2"


def _kind(gpus: list[int], work_s: float, **more: Any) -> dict[str, Any]:
    """Jobs that ask for one of these numbers of GPUs and last for about so long."""
    sizes = {"kind": "choice", "values": gpus} if len(gpus) > 1 else gpus[0]
    times = {"kind": "lognormal", "mean": work_s, "deviation": work_s}
    return {"work_s": times, "gpus": sizes, "cpus": 2, "memory_gib": 8, "grace_s": 20, **more}


def _workload(jobs: int, kinds: list[dict[str, Any]], load: float = 1.6) -> dict[str, Any]:
    return {"kind": "generated", "jobs": jobs, "kinds": kinds, "arrivals": {"kind": "poisson", "load": load}}


def _users(*vcs: str) -> list[dict[str, Any]]:
    return [{"name": f"user-{vc}", "vc": vc} for vc in vcs]


SHARED = _workload(
    400,
    [
        _kind([1, 2, 4, 8], 1800, share=5, estimate_error=0.3),
        _kind([1, 1, 2, 8], 240, share=3, trial=True),
        _kind([4, 8], 2400, share=1, tasks={"kind": "choice", "values": [2, 3]}),
        _kind([2, 4], 200, share=1, trial=True, tasks=2),
    ],
)
TENANTS = _workload(
    300,
    [
        _kind([1, 2, 4, 8], 1800, share=5, users=_users("a", "b", "c")),
        _kind([1, 2], 240, share=2, trial=True, users=_users("a", "b")),
        _kind([4, 8], 2400, share=1, tasks=2, users=_users("a")),
    ],
    load=1.3,
)
DELAYS = {"start": 3, "resume": 20, "checkpoint": 8, "end": 1, "checkpoint_every": 600}
FAILURES = {"mtbf_h": 6, "mttr_h": 0.5, "until_h": 24, "fence_after": 300}
OWNERS = [
    {"name": "a", "owns": {GPUS: {"node": 2}}, "policy": "fitgpp", "weight": 2},
    {"name": "b", "owns": {GPUS: {"node": 1, "switch": 2}}, "policy": "lrtp"},
    {"name": "c", "owns": {GPUS: {"node": 1, "device": 4}}, "policy": "priority"},
]


def _case(policy: Mapping[str, Any], **more: Any) -> Callable[[Evidence], None]:
    case = Case.model_validate({"cluster": NODES, "workload": SHARED, "policy": policy, "delays": DELAYS, **more})

    def run(evidence: Evidence) -> None:
        import scheduler_service.sim.world as world

        with patch.object(world, "step", _kept(world.step, evidence)):
            simulate(case)

    return run


def _kept(step: Callable[..., Step], evidence: Evidence) -> Callable[..., Step]:
    def kept(*arguments: Any) -> Step:
        taken = step(*arguments)
        evidence.take(taken)
        return taken

    return kept


def _history(seed: int) -> Callable[[Evidence], None]:
    """Users, operators, nodes and restarts at random."""

    def run(evidence: Evidence) -> None:
        with patch.object(driver, "step", _kept(driver.step, evidence)), patch.object(driver.Driver, "thorough", True):
            history = History(seed)
            for _ in range(6):
                history.go_on(history.draw.randint(1, 25))
                history.restart()
            history.end()

    return run


def _recording(path: Path) -> Callable[[Evidence], None]:
    """What the service took in, from a file of `ebb-scheduler serve --record`."""

    def run(evidence: Evidence) -> None:
        for _number, _line, came_out in taken_again(path, again, Summary()):
            assert isinstance(came_out, Step)
            evidence.take(came_out)

    return run


def _in_cells(policy: str, **more: Any) -> Callable[[Evidence], None]:
    return _case({"name": policy}, workload=TENANTS, virtual_clusters=OWNERS, **more)


SCENARIOS: dict[str, Callable[[Evidence], None]] = {
    "fifo": _case({"name": "fifo"}),
    "fifo with backfill": _case({"name": "fifo", "backfill": True}),
    "fitgpp": _case({"name": "fitgpp"}),
    "fitgpp as published": _case(
        {"name": "fitgpp", "trials_in_flight": 1, "sparing": False, "in_order": True}, decide_every=60
    ),
    "fitgpp with backfill, aging and min_run": _case({"name": "fitgpp", "backfill": True, "aging": 600, "min_run": 120}),
    "fitgpp with failures of nodes": _case({"name": "fitgpp"}, failures=FAILURES),
    "thrifty": _case({"name": "thrifty"}),
    "lrtp": _case({"name": "lrtp", "cap": None}),
    "rand": _case({"name": "rand", "cap": 2}),
    "cells": _in_cells("cells"),
    "cells without promotion": _case({"name": "cells", "promotes": False}, workload=TENANTS, virtual_clusters=OWNERS),
    "cells for guaranteed jobs alone": _in_cells("cells", guarantee="guaranteed"),
    "cells with failures of nodes": _in_cells("cells", failures=FAILURES),
    "cells with exchange": _in_cells(
        "cells",
        exchange={"offer_after_h": 0.5, "offer_for_h": 5, "request_for_h": 2, "request_every_h": 0.25},
    ),
    "quota": _in_cells("quota"),
    **{f"history {seed}": _history(seed) for seed in range(6)},
    **{f"recording {path.name.partition('.')[0]}": _recording(path) for path in sorted(RECORDINGS.glob("*.gz"))},
}
