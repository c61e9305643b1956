"""The demo's sequence: jobs fill the cluster, trials preempt some of them, these resume, and everything is checked.

Nothing here waits for a guessed time: a trial arrives when the step log of the job that it will preempt shows enough steps,
and no job ends before all trials have arrived.
"""

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from client_sdk import Client, EbbError
from examples.cluster import Cluster, ClusterError
from examples.demo import workplace
from examples.demo.judge import judge
from examples.demo.outside import Outside, OutsideError
from examples.demo.report import report
from examples.demo.scenario import CUES
from examples.demo.stage import TRAIN, Failed, Stage, progress
from examples.demo.stopping import Stopped, Stopping, nobody_reads
from examples.demo.table import Board, Output


def play(folder: Path, stopping: Stopping, console: Console) -> bool:
    """Runs the demo in this folder; whether all checks held. Its processes have ended when it returns or raises."""
    began = time.monotonic()
    with ExitStack() as stack:
        console.print("Starting a scheduler with its own PostgreSQL, and two nodes of 8 simulated GPUs ...", soft_wrap=True)
        outside = Outside(TRAIN, stopping)
        stack.callback(outside.close)
        cluster = stack.enter_context(
            Cluster(folder / "ebb", ["--preset", "paper", "--log-level", "WARNING"], pause=stopping.pause)
        )
        cluster.start_scheduler()
        client = stack.enter_context(Client(cluster.address))
        with Board(console, client, lambda job: progress(folder, job)) as board:
            stage = Stage(folder, cluster, client, outside, board, stopping)
            stage.raise_nodes()
            stage.fill()
            for cue in CUES:
                stage.enter_trial(cue)
            stage.let_all_end()
            stage.check_the_check()
            stage.wait_for_the_end()
        outcome = judge(stage.record())
    return report(outcome, time.monotonic() - began, console)


Play = Callable[[Path, Stopping, Console], bool]
"""A show: runs in a folder of its own, and returns whether all checks held."""


def perform(show: Play, stopping: Stopping) -> bool:
    """The show in a new folder, which is kept if something did not hold. Raises Stopped."""
    for name in [name for name in os.environ if name.startswith("EBB_")]:
        del os.environ[name]  # what is set for another cluster, as in a shell's profile
    console = Output()
    folder = workplace.make()
    held = clean = False
    try:
        held = show(folder, stopping, console)
    except (Failed, OutsideError, ClusterError, EbbError) as error:
        console.print(f"FAILED: {error}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    except Stopped:
        held = True  # nothing that anybody would look at
        raise
    except OSError as error:
        held = nobody_reads(error)
        raise
    finally:
        left = workplace.end_leftovers(folder)
        for line in left:
            print(f"FAILED: this process was left behind, and was killed: {line}", file=sys.stderr)
        clean = held and not left
        if clean or not any(folder.iterdir()):
            workplace.remove(folder)
        else:
            print(f"Logs and all else are kept in {folder}", file=sys.stderr)
    return clean
