"""The rows of a share group after a change. Policies propose rows; these functions make them from the existing ones."""

from collections.abc import Collection, Sequence

from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.sharing import Row


def with_packed(rows: Sequence[Row], row: int, keys: Collection[RunKey]) -> tuple[Row, ...]:
    """The rows with these runs in the row of this number, in addition to those that it has.

    >>> with_packed((Row((RunKey(1, 1),)),), 0, [RunKey(2, 1)])[0].runs
    (RunKey(job_id=1, run=1, task=0), RunKey(job_id=2, run=1, task=0))
    """
    joined = rows[row]._replace(runs=tuple(sorted({*rows[row].runs, *keys})))
    return (*rows[:row], joined, *rows[row + 1 :])


def with_sliced(rows: Sequence[Row], keys: Collection[RunKey], weight: int = 1) -> tuple[Row, ...]:
    """The rows with these runs in a row of their own, which comes last in a cycle."""
    return (*rows, Row(tuple(sorted(keys)), weight))


def with_weights(rows: Sequence[Row], weights: Sequence[int]) -> tuple[Row, ...]:
    """The rows with these weights, one for each row."""
    return tuple(row._replace(weight=weight) for row, weight in zip(rows, weights, strict=True))


def without_runs(rows: Sequence[Row], keys: Collection[RunKey]) -> tuple[Row, ...]:
    """The rows without these runs, and without rows that have no others. If no row that is left has a turn, all get one."""
    fewer = (row._replace(runs=tuple(key for key in row.runs if key not in keys)) for row in rows)
    left = tuple(row for row in fewer if row.runs)
    return left if any(row.weight for row in left) else tuple(row._replace(weight=1) for row in left)


def with_idle_turns(rows: Sequence[Row], members: Sequence[Run]) -> tuple[Row, ...]:
    """The rows with turns for jobs that have none, although no job with turns uses their devices any more. They execute
    together with all that have turns; those that want the same devices take turns. `members`: all that are in the rows."""
    used = {run.key: {(run.node, index) for index in run.devices} for run in members}
    turned = {key for row in rows if row.weight for key in row.runs}
    taken = {device for key in turned for device in used[key]}
    held_up = {key.job_id for key in used if key not in turned and not used[key].isdisjoint(taken)}
    beside, more, given = list[RunKey](), list[Row](), set[RunKey](turned)
    for row in rows:
        idle = tuple(key for key in row.runs if key not in given and key.job_id not in held_up)
        devices = {device for key in idle for device in used[key]}
        if idle and taken.isdisjoint(devices):
            beside += idle
            taken |= devices
        elif idle:
            more.append(Row(idle))
        given.update(idle)
    if given == turned:
        return tuple(rows)
    kept = [row._replace(runs=tuple(key for key in row.runs if key not in given)) for row in rows if not row.weight]
    first = [with_packed([row], 0, beside)[0] for row in rows if row.weight]
    return (*first, *more, *(row for row in kept if row.runs))
