"""Share groups that do not go with the runs in them: no leader begins with such."""

from collections.abc import Callable
from typing import Any

import pytest

from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.state.load_check import contradictions
from tests.core.sharing_desk import key, row, shared

Rows = dict[tuple[str, Any], Any]


def change(found: Rows, table: str, key: Any, **facts: Any) -> None:
    found[table, key] = with_changes(found[table, key], **facts)


def double(found: Rows, **facts: Any) -> None:
    """Another group."""
    found["share_group", 7] = with_changes(found["share_group", 1], id=7, **facts)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda r: r.pop(("share_group", 1)), "run 1.1 is in share group 1, and there is no such group"),
        (lambda r: change(r, "share_group", 1, rows=(row(1),)), "run 2.1 is in share group 1, which has no row with it"),
        (lambda r: change(r, "run", key(2), group=0), "share group 1 has run 2.1 in a row, which is not a member"),
        (lambda r: change(r, "run", key(2), group=0), "device 0 of node n1 is held by run 1.1 and by run 2.1"),
        (lambda r: r.pop(("run", key(2))), "share group 1 has run 2.1 in a row, which is not a member"),
        (lambda r: double(r), "device 0 of node n1 is held by share groups 1 and 7"),
        (
            lambda r: change(r, "share_group", 1, devices=((1, (0, 5)),)),
            "share group 1 holds devices [0, 5] of node n1, and its members use other devices",
        ),
        (
            lambda r: change(r, "share_group", 1, guaranteed=True),
            "share group 1 and run 1.1 differ in their virtual cluster, or in whether they are guaranteed",
        ),
        (
            lambda r: change(r, "run", key(1), parked_mib=65_536),
            "node n1 has 32 CPUs, 65536 MiB and 8 devices, and of it 3 CPUs, 68608 MiB and 2 devices are held, or kept for "
            "jobs that wait",
        ),
    ],
)
def test_groups_that_cannot_be_are_told(spoil: Callable[[Rows], object], told: str) -> None:
    spoilt = {(table.name, at): one for table in shared().state.tables() for at, one in table.rows.items()}
    assert not list(contradictions((table, at, one) for (table, at), one in spoilt.items()))
    spoil(spoilt)
    assert told in list(contradictions((table, at, one) for (table, at), one in spoilt.items()))
