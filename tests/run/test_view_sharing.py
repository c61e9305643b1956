"""What readers see of nodes on which devices are shared."""

from scheduler_service.core.messages import Share
from scheduler_service.run.read_model import View
from tests.core.sharing_desk import Sharing, row, shared


def view_of(desk: Sharing) -> View:
    state = desk.state
    return View([(table.name, key, one) for table in state.tables() for key, one in table.rows.items()], 1)


def test_a_shared_device_is_taken_once_and_shows_all_jobs() -> None:
    desk = shared()
    seen = view_of(desk).node(1)
    assert seen.free == desk.free()
    assert seen.groups == {0: (1, 2), 1: (3,)}


def test_what_is_parked_takes_memory_of_the_node() -> None:
    desk = shared()
    desk.do(Share((row(1), row(2))))
    assert view_of(desk).node(1).free == desk.free()
