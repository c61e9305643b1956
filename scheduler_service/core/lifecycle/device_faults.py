"""Faulty devices: nothing new is placed on one, and what fails on one is not the job's fault.

A run that holds a faulty device continues if it can, and keeps what it holds. When it has left, the device is neither free nor
owned by any run, until it is healthy again.
"""

from collections.abc import Mapping

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.lifecycle.node_health import drop_earmarks_on, find_node
from scheduler_service.core.messages import FaultsSeen, NodeChanged
from scheduler_service.core.model import EventKind, Node, Run
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def faults_seen(state: State, event: FaultsSeen, now: Micros) -> NodeChanged:
    node = find_node(state, event.name)
    if node.boot_id == event.boot_id:  # else it has connected again since, and has reported its faults
        unknown = [index for index, _ in event.faults if (node.id, index) not in state.devices.rows]
        if unknown:
            raise FailedPrecondition("NO_SUCH_DEVICE", f"node {node.name} has no devices {unknown}", node=node.name)
        take_faults(state, now, node, {index: why for index, why in event.faults if why})
    return NodeChanged(node.id)


def take_faults(state: State, now: Micros, node: Node, faults: Mapping[int, str]) -> None:
    """Makes these the node's faulty devices, and no others.

    Earmarks that a fault makes useless are dropped: their trials look for other room.
    """
    for index in range(node.capacity.devices):
        device, why = state.devices.rows[(node.id, index)], faults.get(index, "")
        if device.fault == why:
            continue
        state.put(state.devices, (node.id, index), with_changes(device, fault=why))
        if not why or device.fault:
            continue
        for run in state.holders(node.id, index):
            log_event(state, now, run.job_id, EventKind.DEVICE_FAULT, run=run.run, node=node.id, text=f"device {index}: {why}")
            for earmark_id in state.promised_by.get(run.key, ()):
                earmark = state.earmarks.rows[earmark_id]
                if not earmark.devices or earmark.mask >> index & 1:
                    drop_earmarks(state, now, earmark.job_id, f"device {index} is faulty")
    if state.free_resources.free(node.id).devices < 0 or state.kept_devices.get(node.id, 0) & state.faulty_devices.get(
        node.id, 0
    ):
        drop_earmarks_on(state, node.id, now, "a device that was kept is faulty")


def fault_of(state: State, run: Run) -> str:
    """The fault of a device of the run, as "device 3: ..."; empty if it has none."""
    if not state.holds_faulty(run):
        return ""
    faulty = (state.devices.rows[(run.node, index)] for index in run.devices)
    return next(f"device {device.index}: {device.fault}" for device in faulty if device.fault)
