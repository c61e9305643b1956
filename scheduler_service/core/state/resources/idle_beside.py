"""Whether a device is idle in addition to those kept for a waiting job: if not, no job that needs one can start behind it.

The last answer is cached until something that it depends on changes, since the first job of a queue mostly waits while many
others join behind it. Each of the three inputs counts its own changes, so undo needs no special handling.
"""

from scheduler_service.core.model import JobSpec
from scheduler_service.core.state.resources.free_resources import FreeResources, Kept
from scheduler_service.core.state.resources.open_nodes import OpenNodes
from scheduler_service.core.state.resources.suitable_nodes import SuitableNodes, asks_nothing


class IdleBeside:
    """A cache of the last answer."""

    __slots__ = ("_answer", "_at", "_free", "_open", "_spec", "_suitable")

    def __init__(self, free: FreeResources, open_nodes: OpenNodes, suitable: SuitableNodes) -> None:
        self._free, self._open, self._suitable = free, open_nodes, suitable
        self._spec: JobSpec | None = None
        """The spec that the answer is about."""
        self._at = 0
        """Number of changes when the answer was computed."""
        self._answer = False

    def any(self, spec: JobSpec) -> bool:
        """Whether a device is idle. `spec` is that of a waiting job with one task and one configuration, on a site without
        virtual clusters."""
        at = self._free.changes + self._open.changes + self._suitable.changes  # none of them ever falls
        if spec is not self._spec or at != self._at:
            among = None if asks_nothing(spec) else self._suitable.find(spec, self._free.count)
            seats = self._open.seats(spec.demand, among)
            self._answer = self._free.any_device_beside((Kept(seats.bits, spec.demand),))
            self._spec, self._at = spec, at
        return self._answer
