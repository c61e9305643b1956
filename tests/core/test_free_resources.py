"""Free room: the vectorised first fit against a loop over the nodes."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.model import Node, NodeState
from scheduler_service.core.model.values import ZERO, Vector, fits, sub
from scheduler_service.core.state.resources.free_resources import FreeResources

SMALL = st.builds(Vector, st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
LARGE = st.sampled_from([0, 1, 4093, 4094, 4095, 4096, (1 << 24) - 2, (1 << 24) - 1, 1 << 24, 1 << 40])
AMOUNTS = st.one_of(SMALL, st.builds(Vector, LARGE, LARGE, LARGE))


def node(node_id: int, capacity: Vector, state: NodeState = NodeState.UP) -> Node:
    return Node(node_id, f"n{node_id}", "a", state, capacity, (), 0)


def room_of(*capacities: Vector) -> FreeResources:
    room = FreeResources()
    for i, capacity in enumerate(capacities, 1):
        room.set_node(i, node(i, capacity))
    return room


@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS, st.sampled_from(NodeState)), max_size=20),
    AMOUNTS,
)
def test_first_fit_is_the_first_that_fits(nodes: list[tuple[Vector, Vector, NodeState]], need: Vector) -> None:
    room, first = FreeResources(), None
    for i, (capacity, taken, state) in enumerate(nodes, 1):
        room.set_node(i, node(i, capacity, state))
        taken = Vector(*map(min, taken, capacity))
        room.take(i, taken)
        assert room.free(i) == sub(capacity, taken)
        if first is None and state is NodeState.UP and fits(need, sub(capacity, taken)):
            first = i
    assert room.first_fit(need) == first
    assert room.could_ever_fit(need) == any(fits(need, capacity) for capacity, _, _ in nodes if capacity != ZERO)


def test_no_nodes() -> None:
    assert FreeResources().first_fit(ZERO) is None
    assert not FreeResources().could_ever_fit(ZERO)


def test_a_silent_node_offers_nothing_and_keeps_its_room() -> None:
    room = room_of(Vector(1, 1, 1), Vector(1, 1, 1))
    room.set_node(1, node(1, Vector(1, 1, 1), NodeState.SILENT))
    assert room.first_fit(ZERO) == 2
    room.take(1, Vector(1, 0, 0))
    assert room.offered_resources()[:, 1].tolist() == [-1, -1, -1]
    room.set_node(1, node(1, Vector(1, 1, 1)))
    assert room.free(1) == Vector(0, 1, 1)
    assert room.offered_resources()[:, 1].tolist() == [0, 1, 1]


def test_a_node_grows_and_shrinks_around_what_is_taken() -> None:
    room = room_of(Vector(4, 4, 4))
    room.take(1, Vector(1, 1, 1))
    room.set_node(1, node(1, Vector(8, 8, 8)))
    assert room.free(1) == Vector(7, 7, 7)
    assert not room.could_ever_fit(Vector(9, 0, 0))
    room.set_node(1, node(1, Vector(2, 2, 2)))
    assert room.free(1) == Vector(1, 1, 1)
    assert not room.could_ever_fit(Vector(4, 4, 4))
    room.set_node(1, None)
    assert not room.could_ever_fit(Vector(2, 2, 2))


def test_what_could_ever_fit_follows_the_nodes() -> None:
    room, pair = room_of(Vector(4, 4, 4)), (Vector(3, 3, 3),) * 2
    assert not room.could_ever_fit_all(pair)
    room.set_node(2, node(2, Vector(4, 4, 4), NodeState.SILENT))
    assert room.could_ever_fit_all(pair)
    room.take(2, Vector(4, 4, 4))
    assert room.could_ever_fit_all(pair)
    room.set_node(2, None)
    assert not room.could_ever_fit_all(pair)


def test_many_different_gangs_are_not_all_remembered() -> None:
    room = room_of(Vector(3000, 4, 4))
    for cpu in range(3000):
        assert room.could_ever_fit_all((Vector(cpu, 1, 1), Vector(1500, 1, 1))) == (cpu <= 1500)
    assert len(room._ever) <= 1024


def test_many_nodes_and_ids_that_jump() -> None:
    room = FreeResources()
    for node_id in (3, 40, 7, 500):
        room.set_node(node_id, node(node_id, Vector(node_id, 1, 1)))
    assert room.first_fit(Vector(1, 1, 1)) == 3
    assert room.first_fit(Vector(8, 1, 1)) == 40
    assert room.first_fit(Vector(500, 1, 1)) == 500
    assert room.offered_resources().shape == (3, 501)
