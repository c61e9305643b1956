"""The bounds of elastic jobs."""

from client_sdk._values.specs import TaskGroup
from client_sdk.errors import InvalidArgument


def bounds(groups: tuple[TaskGroup, ...], least: int, most: int) -> tuple[int, int]:
    """Return the least and the greatest number of tasks of an elastic job; 0 is an omitted bound. Raises InvalidArgument."""
    if len(groups) != 1:
        raise InvalidArgument(
            "an elastic job has tasks that are alike: say how many it starts with (tasks=2, --tasks 2), and no other groups"
        )
    tasks = groups[0].count
    least, most = least or 1, most or tasks
    if not 1 <= least <= tasks <= most:
        raise InvalidArgument(
            f"min_tasks={least}, tasks={tasks} and max_tasks={most} are not in order: an elastic job needs "
            "1 <= min_tasks <= tasks <= max_tasks"
        )
    return least, most
