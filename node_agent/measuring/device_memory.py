"""Finds the runs that use more device memory than they may, when others execute on the same device (ADR 46).

The limit inside PyTorch and that of MPS are the program's own. A program may use neither of them, and then another run would
meet a full device. So what NVML says of each process is compared with the limit of its run, and the run that is over it is the
culprit.
"""

from collections.abc import Callable, Iterator, Mapping

from node_agent.run_state.model import RunKey, RunRecord

CONTEXT_MIB = 512
"""What a CUDA context takes on a device beside the memory of the program. It does not count."""
_LOOKS = 2
"""A run is over its limit if it is so in so many looks in a row: a process that ends may be seen beside the next one."""

Used = Mapping[tuple[RunKey, int], int]
"""MiB of each run on each device."""


class DeviceMemoryWatch:
    """`exceeded` is called with a run, the index of the device, and what it uses and may use there, in MiB."""

    def __init__(
        self, runs: Callable[[], Mapping[RunKey, RunRecord]], exceeded: Callable[[RunKey, int, int, int], None]
    ) -> None:
        self._runs = runs
        self._exceeded = exceeded
        self._over: dict[tuple[RunKey, int], int] = {}

    def look(self, used: Used) -> None:
        """Once for each observation."""
        found = dict(self._beyond(used))
        self._over = {at: self._over.get(at, 0) + 1 for at in found}
        for (key, index), times in self._over.items():
            if times >= _LOOKS:
                self._exceeded(key, index, used[key, index], found[key, index])

    def _beyond(self, used: Used) -> Iterator[tuple[tuple[RunKey, int], int]]:
        runs = self._runs()
        for (key, index), mib in used.items():
            record = runs.get(key)
            limit = 0 if record is None or record.share is None else record.share.device_memory_mib
            if limit and mib > limit + CONTEXT_MIB:
                yield (key, index), limit
