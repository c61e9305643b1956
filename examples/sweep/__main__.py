"""Compares two sweeps on a cluster of this machine, each for the same time in the same slots: `python -m examples.sweep`.

In the first, a configuration holds its slot until it is complete or the pruner stops it, as jobs of a FIFO queue do. In the
second, members take turns: each new configuration gives early feedback, and the best one runs on. Both have the same
configurations in the same order, and the same pruner: one that stops what has a loss above a threshold, or ASHA's, which
stops all but the best third at each rung.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import optuna

from client_sdk import Client, JobState
from client_sdk.sweep import Member, Sweep
from client_sdk.sweep.optuna import OptunaSearch
from examples.cluster import Cluster

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("train.py")
CONFIGURATIONS = 1000
"""More than can be tried."""
PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "threshold": lambda: optuna.pruners.ThresholdPruner(upper=0.4),
    "asha": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1000, reduction_factor=3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120, help="time for each sweep")
    parser.add_argument("--slots", type=int, default=2, help="members that execute at the same time")
    parser.add_argument("--live", type=int, default=12, help="members that take turns in the second sweep")
    parser.add_argument("--turn", type=float, default=5, help="seconds of each turn of a member but its first")
    parser.add_argument("--steps", type=int, default=500_000, help="steps of a configuration that is complete")
    parser.add_argument("--rule", choices=PRUNERS, default="threshold", help="which configurations are stopped")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="ebb-sweep-") as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.start_scheduler()
            cluster.start_agent("node-1", "dgx-a100")
            with Client(cluster.address, timeout=60) as client:
                print(f"{'':12}  explored  stopped  complete  best loss  seconds of members")
                for name, live, exclusive in (("one by one", arguments.slots, 0), ("in turns", arguments.live, 1)):
                    members, seconds = swept(client, name.replace(" ", "-"), live, exclusive, arguments)
                    print(row(name, members, seconds), flush=True)
        finally:
            cluster.close()


def swept(client: Client, name: str, live: int, exclusive: int, arguments: argparse.Namespace) -> tuple[list[Member], float]:
    """The members of a sweep that was ended after the time, the best first, and for how long they have run in all."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3), pruner=PRUNERS[arguments.rule]())
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "STEPS": str(arguments.steps)}
    environment |= {"PATH": os.environ["PATH"]}
    with Sweep(
        client,
        [sys.executable, str(SCRIPT)],
        name=name,
        slots=arguments.slots,
        live=live,
        exclusive=exclusive,
        turn=arguments.turn,
        devices=1,
        cpus=1,  # several members share a device
        memory="1GiB",
        grace=10,
        env=environment,
    ) as sweep:
        end = time.monotonic() + arguments.seconds
        members = sweep.run(OptunaSearch(study, space, CONFIGURATIONS), lambda: time.monotonic() > end)
        return members, sweep.seconds


def space(trial: optuna.Trial) -> dict[str, float]:
    return {
        "rate": trial.suggest_float("rate", 1e-4, 1.0, log=True),
        "momentum": trial.suggest_float("momentum", 0.0, 0.95),
        "hidden": trial.suggest_int("hidden", 4, 64),
    }


def row(name: str, members: list[Member], seconds: float) -> str:
    explored = [member for member in members if member.reports]
    complete = [member for member in members if member.job.state is JobState.SUCCEEDED]
    killed = [member for member in members if member.killed]
    best = min((report.value for member in explored for report in member.reports if not math.isnan(report.value)), default=0)
    return f"{name:12}  {len(explored):8}  {len(killed):7}  {len(complete):8}  {best:9.4f}  {seconds:18.0f}"


if __name__ == "__main__":
    main()
