"""Rows that do not go together are told, with what and where. That rows which do are loaded is seen after every step of every
test (`tests.core.driver`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler_service.core.model import JobState, RunKey
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.load_check import contradictions
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver

Rows = dict[tuple[str, Any], Any]


def rows() -> Rows:
    """On n1 job 1 with four devices, and job 2, which leaves with four for trial 3; job 4 waits."""
    d = Driver(stages("fitgpp", PreemptionSettings()).policy)
    d.join()
    d.start(d.submit(devices=4, trial=True), d.submit(devices=4))
    d.trial(3)
    d.submit(devices=8)
    return {(table.name, key): row for table in d.state.tables() for key, row in table.rows.items()}


def change(rows: Rows, table: str, key: Any, **facts: Any) -> None:
    rows[table, key] = replace(rows[table, key], **facts)


ONE, TWO = RunKey(1, 1, 0), RunKey(2, 1, 0)
KEPT = "earmark 1, which keeps a part of node n1 for job 3,"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            lambda r: change(r, "run", TWO, devices=(3, 5, 6, 7)),
            "device 3 of node n1 is held by run 1.1 and by run 2.1",
        ),
        (
            lambda r: change(r, "run", TWO, devices=(5, 6, 7, 8)),
            "run 2.1 asked for 4 devices of node n1 and holds [5, 6, 7, 8]",
        ),
        (lambda r: change(r, "run", TWO, devices=(5,)), "run 2.1 asked for 4 devices of node n1 and holds [5]"),
        (lambda r: r.pop(("device", (1, 7))), "run 2.1 asked for 4 devices of node n1 and holds [4, 5, 6, 7]"),
        (
            lambda r: change(r, "run", TWO, demand=Vector(32_000, 1024, 4)),
            "node n1 has 32 CPUs, 65536 MiB and 8 devices, "
            "and of it 34 CPUs, 3072 MiB and 8 devices are held, or kept for jobs that wait",
        ),
        (lambda r: r.pop(("job", 1)), "run 1.1 has not ended, and job 1 has"),
        (lambda r: change(r, "job", 1, run=2), "run 1.1 has not ended, and job 1 is at run 2"),
        (lambda r: change(r, "job", 1, state=JobState.QUEUED), "job 1 is QUEUED, and has runs that have not ended"),
        (lambda r: change(r, "job", 4, state=JobState.RUNNING), "job 4 is RUNNING, and has no runs that have not ended"),
        (lambda r: r.pop(("job", 3)), f"{KEPT} is for a job that does not wait"),
        (lambda r: change(r, "job", 4, configuration=1), "job 4 is in configuration 1, and the last that it has is 0"),
        (
            lambda r: change(r, "earmark", 1, configuration=2),
            f"{KEPT} is for its configuration 2, and the last that it has is 0",
        ),
        (lambda r: change(r, "earmark", 1, victims=(ONE,)), f"{KEPT} waits for run 1.1, which is not leaving that node"),
        (
            lambda r: change(r, "earmark", 1, devices=((2, 3, 4),)),
            f"{KEPT} names a device that run 1.1 holds, for which it does not wait",
        ),
    ],
)
def test_what_does_not_go_together_is_told(spoil: Callable[[Rows], object], told: str) -> None:
    spoilt = rows()
    spoil(spoilt)
    assert list(contradictions((table, key, row) for (table, key), row in spoilt.items())) == [told]


def test_a_device_that_is_kept_twice_is_told() -> None:
    spoilt = rows()
    change(spoilt, "earmark", 1, devices=((4, 5, 6),))
    spoilt["earmark", 2] = replace(spoilt["earmark", 1], id=2, job_id=4)
    assert "earmark 2, which keeps a part of node n1 for job 4, names a device that is kept for another job" in list(
        contradictions((table, key, row) for (table, key), row in spoilt.items())
    )
