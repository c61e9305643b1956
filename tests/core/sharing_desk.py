"""A desk for tests of share groups, at which jobs are placed by hand."""

from collections.abc import Callable
from typing import Any

from scheduler_service.core.enact import enact
from scheduler_service.core.messages import (
    Event,
    Launch,
    Place,
    Share,
    Spot,
    Step,
)
from scheduler_service.core.model import JobEvent, RunKey
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.state.queue_order import OrderOf
from scheduler_service.core.state.state import State
from tests.core.driver import ORDER
from tests.core.test_enact import Desk

HALF = 18_000
"""MiB: two of these fit into what runs may use of a device."""


def key(job: int, task: int = 0) -> RunKey:
    return RunKey(job, 1, task)


def row(*jobs: int, weight: int = 1) -> Row:
    return Row(tuple(key(job) for job in jobs), weight)


class Sharing(Desk):
    """n1 and n2 have eight devices each. Jobs are placed by hand."""

    def __init__(self, *nodes: str, order: OrderOf = ORDER) -> None:
        self.told_of: list[JobEvent] = []
        super().__init__()
        self.state = State(self.state.cluster, self.state.settings, order)
        for name in nodes or ("n1",):
            self.join(name)

    def alone(self, *devices: int, node: int = 1, **wants: Any) -> int:
        job = self.submit(devices=len(devices), **wants)
        self.place(job, node, *devices)
        self.start(job)
        return job

    def beside(self, rows: Callable[[int], tuple[Row, ...]], *devices: int, memory: int = HALF, **wants: Any) -> int:
        """A job that starts on these devices, in rows with those who hold them; all may use as much memory."""
        job = self.submit(devices=len(devices), **wants)
        made = rows(job)
        limits = tuple((one, memory) for one in sorted({member for row in made for member in row.runs}))
        self.do(Place(job, (Spot(1, devices),), share=Share(made, limits)))
        return job

    def step(self, *events: Event, after: int = 0) -> Step:
        taken = super().step(*events, after=after)
        self.told_of += taken.log
        return taken

    def group(self) -> ShareGroup:
        (group,) = self.state.share_groups.rows.values()
        return group

    def refusal(self, *plan: object) -> str | None:
        with self.state.supposing():
            return enact(self.state, plan, self.now)  # type: ignore[arg-type]


def plans(taken: Step) -> dict[RunKey, Any]:
    return {order.key: order.desired.share for order in taken.orders if isinstance(order.desired, Launch)}


def shared() -> Sharing:
    """1 and 2 share device 0 of n1 and 3 has device 1. 4 waits."""
    d = Sharing()
    one = d.alone(0)
    d.beside(lambda job: (row(one, job),), 0)
    d.alone(1)
    d.submit()
    return d
