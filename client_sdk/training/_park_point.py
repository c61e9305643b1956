"""Points at which a training script may be parked, for scripts that no hook supports."""

from typing import TYPE_CHECKING

from client_sdk.training import step_counter

if TYPE_CHECKING:
    from ebb_inject.ebb_hook.parking import Parking

_calls = 0


def park_point() -> None:
    """Marks a place between two steps where the program may be parked. It costs about a microsecond if nothing is requested.

    If the agent has requested it, the memory of all of PyTorch's tensors on GPUs moves to the host. The call returns after the
    program has resumed, with all tensors as they were. No other thread may use these tensors meanwhile. A program needs no
    such call if it counts its steps, or if it uses optimizers of PyTorch, which Ebb's hook knows.

    Outside of Ebb the call does nothing. It raises nothing of its own; a signal that arrives while the program is parked
    is handled at the end of the call.
    """
    global _calls  # of this process
    _calls += 1
    found = step_counter.parking_of_process()
    if found is not None and found.word[0] != found.seen:
        park(found, _calls)


def park(parking: "Parking", step: int) -> None:
    """Answers a request. `step` is how many steps are done, if nobody counts them."""
    counter = step_counter.active_counter()
    parking.at_boundary(counter, step if counter is None else None)
