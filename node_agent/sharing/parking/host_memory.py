"""Limits the host memory that parked runs may use. Pure."""

from collections.abc import Iterable

from node_agent.run_state.model import RunKey, RunRecord

SHARE = 0.5
"""Part of the node's memory, if the settings do not say how much."""
_MIB = 1 << 20


def capacity(parked_memory_mib: int | None, memory_mib: int) -> int:
    """Return the bytes that all parked runs of a node may have in host memory, by its settings and its memory."""
    return (int(memory_mib * SHARE) if parked_memory_mib is None else parked_memory_mib) * _MIB


def room(records: Iterable[RunRecord], key: RunKey, total: int) -> int:
    """Return the bytes that a run may move to host memory. A program keeps the memory of its largest park for the next one, so
    a run that was parked counts as long as it lives."""
    return max(0, total - sum(each.park.most_bytes for each in records if each.key != key))


def full_text(total: int, taken: int) -> str:
    """Return why nothing (more) can be parked."""
    return (
        f"host memory for parked runs is full: {taken // _MIB} MiB of {total // _MIB} MiB are taken. "
        "Set parked_memory_mib of the agent to allow more"
    )
