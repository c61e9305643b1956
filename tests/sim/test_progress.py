"""What people see of a sweep while it goes on."""

import io
import re

import pytest
from rich.console import Console
from rich.progress import Progress

from scheduler_service.sim.progress import Remaining, Screen, length


def screen(terminal: bool) -> tuple[Screen, io.StringIO]:
    shown = io.StringIO()
    return Screen(Console(file=shown, force_terminal=terminal, width=100)), shown


def test_a_pipe_gets_a_line_for_each_simulation() -> None:
    watched, shown = screen(terminal=False)
    with watched:
        watched.begin(2, 1, 4)
        watched.report_progress(0, 50, 100)
        watched.report_end(0, "fifo, seed 1", None)
        watched.report_end(1, "ours [new], seed 1", "it broke")
    assert shown.getvalue().splitlines() == [
        "1 of 3 simulations are there already",
        "2 simulations to do, 2 at a time",
        "1/2 fifo, seed 1",
        "FAILED ours [new], seed 1: it broke",
    ]


def test_a_cluster_without_workers_is_told() -> None:
    watched, shown = screen(terminal=False)
    watched.begin(1, 0, 0)
    assert shown.getvalue() == "1 simulation to do; the cluster has no workers yet\n"


def test_a_terminal_gets_a_bar_that_knows_of_simulations_under_way() -> None:
    watched, shown = screen(terminal=True)
    with watched:
        watched.begin(4, 0, 2)
        watched.report_progress(0, 50, 100)
        watched.report_progress(1, 100, 400)
        watched.report_end(2, "fifo, seed 3", None)
        watched.report_progress(3, 7, None)  # nobody knows of how many
    assert re.search(r"1 of 4 simulations.* 44 %", shown.getvalue())  # 1 + 0.5 + 0.25 of 4
    assert "fifo, seed 3" not in shown.getvalue()


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (7200, "2 h 0 min"), (12000, "3 h 20 min")]
)
def test_lengths(seconds: float, told: str) -> None:
    assert length(seconds) == told


def test_the_estimate_goes_by_what_is_done() -> None:
    clock = [0.0]
    bar = Progress(get_time=lambda: clock[0], console=Console(file=io.StringIO()))
    bar.add_task("", total=8)
    (task,) = bar.tasks
    column = Remaining()
    assert column.render(task).plain == ""
    clock[0] = 60
    bar.update(task.id, completed=2)
    assert column.render(task).plain == "about 3 min left"
