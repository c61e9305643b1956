"""`make demo SHOW=gandiva`: jobs take turns, are packed by what is measured, move, grow and shrink."""

import os
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.text import Text

from client_sdk import Client
from examples.cluster import Cluster, Start, start_module
from examples.demo.gandiva.acts import Packing, Turns, defragment, oversubscribe, pack, resize, stays
from examples.demo.gandiva.cluster import Site, configuration
from examples.demo.gandiva.report import report
from examples.demo.stage import Failed
from examples.demo.stopping import Stopping

KINDS = ("reader", "cruncher")
EXPECTED = {"reader": True, "cruncher": False}
"""Whether packing two jobs of this kind pays."""


class Stage:
    """Starts a cluster of one node, and says when things happen."""

    def __init__(self, folder: Path, stopping: Stopping, console: Console, start: Start = start_module) -> None:
        self._folder = folder
        self._stopping = stopping
        self._console = console
        self._start = start
        self._began = time.monotonic()
        self._stack = ExitStack()

    def __enter__(self) -> Site:
        cpus = first_two(os.sched_getaffinity(0))
        with ExitStack() as stack:
            work = self._folder / "work"
            work.mkdir(parents=True)
            flags = ["--config", str(configuration(work)), "--log-level", "WARNING"]
            cluster = Cluster(self._folder / "ebb", flags, pause=self._stopping.pause, start=self._start)
            stack.enter_context(cluster)
            cluster.start_scheduler()
            client = stack.enter_context(Client(cluster.address))
            site = Site(work, cpus, self._stopping, client, cluster)
            site.start_node("n1")
            self._stack = stack.pop_all()
        return site

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        said = Text.assemble((f"{self.seconds:5.1f} s  ", "dim"), text)
        self._console.print(said, soft_wrap=True, highlight=False)

    @property
    def seconds(self) -> float:
        """Since the show began."""
        return time.monotonic() - self._began


def play(folder: Path, stopping: Stopping, console: Console) -> bool:
    """Runs the show in this folder, and returns True. Its processes have ended when it returns or raises. Raises Failed if
    something did not hold."""
    stage = Stage(folder, stopping, console)
    console.print("Starting a scheduler with its own PostgreSQL, and a node with two devices, each one CPU ...", soft_wrap=True)
    with stage as site:
        turns, packings = share(stage, site, KINDS)
        for packing in packings:
            if packing.kept is not EXPECTED[packing.kind]:
                raise Failed(
                    f"packing of two {packing.kind}s is {'kept' if packing.kept else 'undone'}: the devices do "
                    f"{packing.ratio:.2f} times the work. Other processes may keep this machine busy"
                )
            stays(site, packing.kind, packing.kept)
        site.end(*(f"cruncher-{number}" for number in (1, 2)))
        stage.say("The crunchers end, and a device of n1 is idle. A second node starts.")
        site.start_node("n2")
        move = defragment(site, "n2", "n1", stage.say)
        sizes = resize(site, stage.say)
        site.end("elastic", "newcomer", "mover", *(f"reader-{number}" for number in (1, 2)))
    report(turns, packings, move, sizes, stage.seconds, console)
    return True


def share(stage: Stage, site: Site, kinds: Sequence[str]) -> tuple[list[Turns], list[Packing]]:
    """Two jobs of each kind take turns on a device; then packing of each pair is tried."""
    turns = oversubscribe(site, kinds, stage.say)
    return turns, [pack(site, kind, stage.say) for kind in kinds]


def first_two(cpus: AbstractSet[int]) -> tuple[int, int]:
    """The CPUs of the devices. Raises Failed if there are too few."""
    if len(cpus) < 2:
        raise Failed(f"this show needs 2 CPUs or more for its devices, and this process may use {len(cpus)}")
    one, other, *_ = sorted(cpus)
    return one, other
