"""What is said of a pinned cell whose nodes are not all there, or are another pool's by now."""

from ebb.v1 import virtual_clusters_pb2 as pb

from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Pin
from scheduler_service.core.state.state import State
from scheduler_service.rpc.convert.cells import pin_out
from tests.policies.tenants import Tenants

PLAN = PoolPlan("p", ("n1", "n2", "n3"), (("rack", 3),))


def said(state: State, pin: Pin) -> tuple[int, int, list[tuple[str, str]]]:
    assert state.pools is not None
    use = pin_out(state, state.pools, pin)
    return use.state, use.devices, [(fault.node, fault.why) for fault in use.faults]


def test_nodes_that_have_not_joined_or_are_left_out_are_named() -> None:
    t = Tenants({"n1": "FOUR", "n2": "SIX"}, [PLAN])
    assert said(t.state, Pin("x", "p", "node", 0)) == (pb.PIN_STATE_FREE, 4, [])
    assert said(t.state, Pin("x", "p", "rack", 0)) == (
        pb.PIN_STATE_FAULTY,
        12,
        [("n2", "its devices are not like those of the other nodes of pool p"), ("n3", "it is not there")],
    )


def test_a_cell_of_a_name_that_there_is_no_more_is_faulty() -> None:
    t = Tenants({"n1": "FOUR"}, [PLAN])
    for pool, level in (("four-2x2", "node"), ("p", "pod")):
        assert said(t.state, Pin("x", pool, level, 0)) == (
            pb.PIN_STATE_FAULTY,
            0,
            [("", f"there is no {pool}/{level} any more")],
        )
