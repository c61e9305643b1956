"""Registered objects: reading the state of each kind of object, and restoring it in place."""

import pickle
import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

_IMMUTABLE = (int, float, complex, str, bytes, tuple, frozenset, type(None))


class Access(NamedTuple):
    """How the state of one registered object is read and put back."""

    get: Callable[[], Any]
    put: Callable[[Any], Any]


def access(name: str, thing: Any) -> Access:
    """`thing` is a pair of callables (get, put), or it has `state_dict` and `load_state_dict`, or it is a tensor, an array, a
    generator, a dict, a list, a set, or an object that `pickle` can save.

    Raises TypeError for a value that cannot change in place, such as a number, and for one that has no state to save, such as
    a function, or a state that cannot be pickled: it needs a pair of callables.
    """
    if isinstance(thing, tuple) and len(thing) == 2 and callable(thing[0]) and callable(thing[1]):
        return Access(*thing)
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return Access(thing.state_dict, thing.load_state_dict)
    if isinstance(thing, _IMMUTABLE):
        raise TypeError(
            f"{name}={thing!r} cannot be restored in place, because a {type(thing).__name__} does not change: "
            f"register a pair of callables instead, {name}=(get, put)"
        )
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if isinstance(thing, random.Random):
        return Access(thing.getstate, thing.setstate)
    if numpy is not None and isinstance(thing, numpy.random.Generator):
        return Access(lambda: thing.bit_generator.state, lambda state: setattr(thing.bit_generator, "state", state))
    if torch is not None and isinstance(thing, torch.Generator):
        return Access(thing.get_state, thing.set_state)
    if is_array(thing, numpy, torch) or isinstance(thing, (dict, list, set)):
        return Access(lambda: thing, lambda state: _fill(name, thing, state))
    _refuse_unsavable(name, thing)
    return Access(thing.__getstate__, lambda state: _set_state(thing, state))


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


def _refuse_unsavable(name: str, thing: Any) -> None:
    """Raises TypeError now, because the first save may be that of a stop, and its failure would lose the work."""
    kind = type(thing).__name__
    state = thing.__getstate__()
    if state is None and (callable(thing) or not hasattr(thing, "__dict__")):
        raise TypeError(f"{name}: a {kind} has no state to save: register a pair of callables, {name}=(get, put)")
    try:
        pickle.Pickler(_Nowhere(), protocol=5).dump(state)
    except Exception as error:
        raise TypeError(
            f"{name}: the attributes of this {kind} cannot be saved ({error}): register a pair of callables, {name}=(get, put)"
        ) from error


def is_array(thing: Any, numpy: ModuleType | None, torch: ModuleType | None) -> bool:
    """Whether it is a NumPy array or a tensor."""
    return (numpy is not None and isinstance(thing, numpy.ndarray)) or (torch is not None and isinstance(thing, torch.Tensor))


def _fill(name: str, thing: Any, state: Any) -> None:
    """Puts a state into a container or an array, so that other references to the object see the restored values."""
    if isinstance(thing, dict):
        merged = {key: _merge(name, thing.get(key), value) for key, value in state.items()}
        thing.clear()
        thing.update(merged)
    elif isinstance(thing, list):
        old = thing if len(thing) == len(state) else [None] * len(state)
        thing[:] = [_merge(name, before, value) for before, value in zip(old, state, strict=True)]
    elif isinstance(thing, set):
        thing.clear()
        thing.update(state)
    elif tuple(thing.shape) != tuple(state.shape):
        raise ValueError(f"{name} has the shape {tuple(thing.shape)}, and the checkpoint has {tuple(state.shape)}")
    elif hasattr(thing, "copy_"):
        thing.detach().copy_(state)
    else:
        thing[...] = state


def _merge(name: str, old: Any, new: Any) -> Any:
    """`new`, in place of `old`: arrays and containers of the same form are filled, everything else is replaced."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    same = type(old) is type(new)
    if same and (isinstance(old, (dict, list, set)) or (is_array(old, numpy, torch) and old.shape == new.shape)):
        _fill(name, old, new)
        return old
    return new


def _set_state(thing: Any, state: Any) -> None:
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
        return
    plain, slots = state if isinstance(state, tuple) else (state, None)
    if plain is not None:
        vars(thing).update(plain)
    for attribute, value in (slots or {}).items():
        setattr(thing, attribute, value)


def put_back(name: str, part: Access, state: Any, step: int) -> None:
    """Restores a part from the checkpoint of a step. Raises what the part raises, with a note of what to do."""
    try:
        part.put(state)
    except Exception as error:
        error.add_note(
            f"{name}= could not be restored from the checkpoint of step {step}. If the program has changed since "
            "then, undo the change, or give job.checkpointable another directory to begin from the start."
        )
        raise
