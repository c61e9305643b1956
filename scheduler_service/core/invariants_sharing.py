"""Invariants of share groups, which hold after every step."""

from scheduler_service.core.errors import claim
from scheduler_service.core.model.launch_time import part_of
from scheduler_service.core.model.settings import DEFAULTS
from scheduler_service.core.model.sharing import ShareGroup, parts_of
from scheduler_service.core.model.values import WHOLE
from scheduler_service.core.sharing.equations import Device, excess, is_exclusive, users_of
from scheduler_service.core.state.state import State

_PHYSICAL = DEFAULTS._replace(device_memory_limit_percent=100, parked_residue_mib=0)
"""Settings without margins: those of the site may be stricter now than when the group was made. No device has more memory."""


def check_share_group(state: State, group: ShareGroup) -> None:
    """Raises Broken, naming the first invariant that does not hold."""
    what, keys = f"share group {group.id}", group.members()
    absent = [key for key in keys if key not in state.runs.rows]
    claim(not absent, f"{what} has members that have ended: {absent}")
    members = [state.runs.rows[key] for key in keys]
    claim(bool(members) and all(row.runs and row.weight >= 0 for row in group.rows), f"{what} has an empty row")
    claim(any(row.weight for row in group.rows), f"no row of {what} has a turn")
    claim(all(len(set(row.runs)) == len(row.runs) for row in group.rows), f"{what} has a run twice in a row")
    claim(group.period_us > 0, f"{what} has a cycle of {group.period_us} us")
    claim(group.id < state.cluster.next_share_group, f"{what} has a number that was not given yet")
    held: dict[int, set[int]] = {}
    for run in members:
        held.setdefault(run.node, set()).update(run.devices)
        claim(run.group == group.id and run.shared, f"run {run.key} is in {what} and says that it is in {run.group}")
        claim(run.vc == group.vc, f"{what} is of {group.vc!r}, and run {run.key} of {run.vc!r}")
        claim(run.guaranteed == group.guaranteed, f"{what} is guaranteed in part")
        for task in state.mates_of(run):
            together = [(task.key in row.runs) == (run.key in row.runs) for row in group.rows]
            claim(all(together), f"a gang is in {what} in part: {run.key} and {task.key} are in other rows")
    devices = tuple((node, tuple(sorted(held[node]))) for node in sorted(held))
    claim(devices == group.devices, f"{what} holds {group.devices}, and its members use {devices}")
    claim(group.open or not is_exclusive(group.rows, members), f"{what} shares nothing")
    parts = parts_of(group.rows)
    for run in members:
        claim(part_of(run) == parts[run.key], f"run {run.key} counts {part_of(run)} ppm of the time, and has {parts[run.key]}")
    for device, users in users_of(members).items():
        claim(sum(run.part_ppm for run in users) <= WHOLE, f"{what} has device {device} in more parts than one device has")
    rows = state.devices.rows
    memory = {(run.node, index): rows[run.node, index].memory_mib for run in members for index in run.devices}
    left = {} if is_exclusive(group.rows, members) else _left_behind(state, group)
    over = excess(group.rows, members, memory, _PHYSICAL, left)
    claim(over is None, f"{what} uses more memory than a device has: {over}")
    for node in held:
        claim(group.id in state.groups_on.get(node, ()), f"{what} is not known on node {node}")


def _left_behind(state: State, group: ShareGroup) -> dict[Device, int]:
    """Residues of parked runs, which are members of no group, on devices of the nodes where the group is."""
    found: dict[Device, int] = {}
    for node, _ in group.devices:
        for run in (state.runs.rows[key] for key in state.runs_on[node]):
            residue = run.parking.residue_mib if run.parking is not None and run.is_parked else 0
            for index in run.placed_on if residue else ():
                found[node, index] = found.get((node, index), 0) + residue
    return found
