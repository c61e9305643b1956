"""The reaction of a training to a failed periodic save."""

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
    """Whether training continues and saves later. It does if a later save may succeed, as on a full disk; saving a state that
    cannot be pickled never succeeds."""
    return on_save_error == "warn" and not isinstance(error, _BUGS)
