"""LOCAL_RANK names a device that the task of a gang sees, however the tasks share their node."""

from pathlib import Path

import pytest

from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import Gang, LaunchSpec, RunKey
from node_agent.runs.environment import environment
from tests.nvml.test_reading import machine
from tests.nvml.test_watching import provider

LAYOUTS = {
    "a task for each GPU": ((0,), (1,), (2,), (3,)),
    "one task with all": ((0, 1, 2, 3),),
    "two tasks with two": ((0, 1), (2, 3)),
    "tasks that differ, not in order": ((3,), (1, 0, 2)),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_the_local_rank_is_the_index_of_a_device_that_the_task_alone_sees(layout: tuple[tuple[int, ...], ...]) -> None:
    gpus = provider(machine(4))
    chosen = []
    for rank, devices in enumerate(layout):
        gang = Gang(rank, len(layout), rank, len(layout), 0, ("n1",), "n1", 20000)
        launch = LaunchSpec(RunKey(1, 1, rank), ("true",), devices=devices, gang=gang)
        given = gpus.environment(devices)
        found = environment({}, launch, "n1", Paths(Path("/s"), Path("/c"), "x"), "/c/1", gpus.inventory, given)
        visible = found["CUDA_VISIBLE_DEVICES"].split(",")
        assert len(visible) == len(devices)
        chosen.append(visible[int(found["LOCAL_RANK"])])  # as torch.cuda.set_device does
        assert int(found["LOCAL_RANK"]) < int(found["LOCAL_WORLD_SIZE"])
        assert (found["EBB_NODE_TASK"], found["EBB_NODE_TASKS"]) == (str(rank), str(len(layout)))
    assert len(set(chosen)) == len(layout), "two tasks choose the same GPU"


def test_tasks_without_devices_are_numbered_on_their_node() -> None:
    gpus = provider(machine(2))
    launch = LaunchSpec(RunKey(1, 1, 2), ("true",), gang=Gang(2, 3, 1, 2, 1, ("n1", "n2"), "n1", 20000))
    found = environment({}, launch, "n2", Paths(Path("/s"), Path("/c"), "x"), "/c/1", gpus.inventory, gpus.environment([]))
    assert (found["LOCAL_RANK"], found["LOCAL_WORLD_SIZE"], found["CUDA_VISIBLE_DEVICES"]) == ("1", "2", "")
