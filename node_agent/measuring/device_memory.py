"""Finds the runs that use more device memory than they may, while others execute on the same device (ADR 46).

PyTorch's limit and that of MPS depend on the program. If a program uses neither, another run may find the device full. So
NVML's figure for each process is compared with the limit of its run, and the run that exceeds its limit is the culprit.
"""

from collections.abc import Callable, Iterator, Mapping

from node_agent.run_state.model import RunKey, RunRecord

CONTEXT_MIB = 512
"""Memory that a CUDA context takes on a device besides that of the program. It does not count."""
_LOOKS = 2
"""A run exceeds its limit if it does in this many looks in a row: a process that ends may be seen next to the next one."""

Used = Mapping[tuple[RunKey, int], int]
"""MiB of each run on each device."""


class DeviceMemoryWatch:
    """`exceeded` is called with a run, the index of the device, and what the run uses and may use there, in MiB."""

    def __init__(
        self, runs: Callable[[], Mapping[RunKey, RunRecord]], exceeded: Callable[[RunKey, int, int, int], None]
    ) -> None:
        self._runs = runs
        self._exceeded = exceeded
        self._over: dict[tuple[RunKey, int], int] = {}

    def check_limits(self, used: Used) -> None:
        """Compare once per observation."""
        found = dict(self._find_beyond_limit(used))
        self._over = {at: self._over.get(at, 0) + 1 for at in found}
        for (key, index), times in self._over.items():
            if times >= _LOOKS:
                self._exceeded(key, index, used[key, index], found[key, index])

    def _find_beyond_limit(self, used: Used) -> Iterator[tuple[tuple[RunKey, int], int]]:
        runs = self._runs()
        for (key, index), mib in used.items():
            record = runs.get(key)
            limit = 0 if record is None or record.share is None else record.share.device_memory_mib
            if limit and mib > limit + CONTEXT_MIB:
                yield (key, index), limit
