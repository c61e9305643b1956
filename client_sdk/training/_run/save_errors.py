"""What a training does when a save between two stops fails."""

import pickle
from typing import Literal

OnSaveError = Literal["warn", "raise"]

_BUGS = (
    TypeError,
    AttributeError,
    LookupError,
    NameError,
    ValueError,
    AssertionError,
    NotImplementedError,
    pickle.PicklingError,
)


def check(on_save_error: str) -> None:
    """Raises ValueError for what is no choice."""
    if on_save_error not in ("warn", "raise"):
        raise ValueError(f'on_save_error={on_save_error!r} is unknown; it is "warn" or "raise"')


def is_survived(error: Exception, on_save_error: OnSaveError) -> bool:
    """Whether the training goes on, and saves later. It does if a later save may succeed, as on a disk that is full now; that
    of a state that cannot be pickled never does."""
    return on_save_error == "warn" and not isinstance(error, _BUGS)
