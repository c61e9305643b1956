"""Migrations on simulated nodes: tasks that are made ready for a job that still works elsewhere."""

from scheduler_service.core.model import RunKey
from scheduler_service.sim.experiments.job_outcomes import Launch, Life
from scheduler_service.sim.nodes import Node, Party, Task


class WarmTasks:
    """The tasks on all nodes that wait for the end of their job's runs elsewhere. They belong to none of the job's launches."""

    def __init__(self) -> None:
        self._tasks: dict[RunKey, Task] = {}

    def make(self, key: RunKey, node: Node, life: Life) -> Task:
        """Make a task, to be reported when it is ready."""
        nothing = Party(life, Launch((), 0), 1, 1)
        task = self._tasks[key] = Task(key, node, nothing)
        return task

    def has(self, key: RunKey) -> bool:
        return key in self._tasks

    def take(self, key: RunKey) -> bool:
        """Remove the task, if there is one, because it begins or is not needed any more; return whether there was one."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.due = 0
        return task is not None

    def lose(self, node: Node) -> None:
        """Remove the tasks on a node that has died."""
        for key in [key for key, task in self._tasks.items() if task.node is node]:
            self.take(key)
