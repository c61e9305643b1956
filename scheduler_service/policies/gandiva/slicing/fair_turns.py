"""A cycle of turns in which each of several users of devices gets its fair part of the time.

Users that want the same device do not execute at the same time. The parts are fair if no user can have more unless another that
has no more than that gets less (max-min fairness). Slots of equal length are filled one after the other: the user that has had
the fewest comes first, the largest of equals, until no other fits. In the long run that is fair but for rare cases, in which a
user that shares each of its devices with idle time gets less than it could: these users are preferred as long as that helps.
The cycle is the shortest sequence of such slots in which the parts are what they are in the long run.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model.values import Mask

LONGEST = 48
"""Slots of a cycle, at most; or two for each user, if there are many."""
_CLOSE = 0.012
"""A cycle is long enough if no part differs by more from that of the long run."""
_HORIZON = 5
"""The long run is so many of the longest cycles."""
_HELPS = 0.02

Turn = tuple[tuple[int, ...], int]
"""Users that execute at the same time, by their numbers, and for how many slots of a cycle."""


@lru_cache(maxsize=4096)
def fair_turns(wants: tuple[Mask, ...]) -> tuple[Turn, ...]:
    """The turns of a cycle. `wants`: the devices that each user wants; of equals, the first comes first. Each user has a turn,
    and no turn leaves devices idle that a user could have besides those that execute."""
    most = max(LONGEST, 2 * len(wants))
    slots, parts = _fill_fairly(wants, _HORIZON * most)
    return _in_order(_shortest(slots, parts, most))


def parts_of(turns: Sequence[Turn], users: int) -> list[float]:
    """The part of a cycle in which each of so many users executes."""
    whole = sum(length for _, length in turns)
    return [sum(length for who, length in turns if user in who) / whole for user in range(users)]


# ---- the long run ------------------------------------------------------------------------------------------------------

Slots = list[tuple[int, ...]]
Parts = NDArray[np.float64]


def _fill_fairly(wants: Sequence[Mask], count: int) -> tuple[Slots, Parts]:
    """Fill this many slots. Returns them, and the part of them that each user has in the long run."""
    slots, refused = _fill(wants, [1.0] * len(wants), count), set[int]()
    parts = _long_run(slots, len(wants))
    while True:
        idle = _idle_beside(wants, parts)
        user = max((user for user in range(len(wants)) if user not in refused), key=lambda user: idle[user], default=None)
        if user is None or idle[user] < _HELPS:
            return slots, parts
        preferred = [part + (idle[user] if other == user else 0) for other, part in enumerate(parts)]
        others = _fill(wants, preferred, count)
        then = _long_run(others, len(wants))
        if np.round(np.sort(then), 2).tolist() > np.round(np.sort(parts), 2).tolist():
            slots, parts, refused = others, then, set()
        else:
            refused.add(user)


def _fill(wants: Sequence[Mask], weights: Sequence[float], count: int) -> Slots:
    """Slots in which users come in the order of what they have had, relative to their weights."""
    had, slots = [0] * len(wants), Slots()
    each = [(1 / weight, -want.bit_count(), user) for user, (want, weight) in enumerate(zip(wants, weights, strict=True))]
    for _ in range(count):
        taken, chosen = 0, []
        for _, _, user in sorted((had[user] * cost, size, user) for cost, size, user in each):
            if not wants[user] & taken:
                taken |= wants[user]
                chosen.append(user)
                had[user] += 1
        slots.append(tuple(sorted(chosen)))
    return slots


def _long_run(slots: Slots, users: int) -> Parts:
    """The part of each user in the second half of the slots, since the first ones are not yet typical."""
    later = slots[len(slots) // 2 :]
    parts: Parts = _slots_passed(later, users)[-1] / len(later)
    return parts


def _slots_passed(slots: Slots, users: int) -> NDArray[np.int64]:
    """How many slots each user has had before each slot, and after the last one."""
    has = np.zeros((len(slots) + 1, users), np.int64)
    for at, who in enumerate(slots, 1):
        has[at, list(who)] = 1
    return np.cumsum(has, axis=0)


def _idle_beside(wants: Sequence[Mask], parts: Parts) -> list[float]:
    """For each user, the part of the time in which the busiest of its devices is idle."""
    busy: dict[int, float] = {}
    for want, part in zip(wants, parts, strict=True):
        for device in _each(want):
            busy[device] = busy.get(device, 0) + float(part)
    return [1 - max(busy[device] for device in _each(want)) for want in wants]


def _each(mask: Mask) -> Iterable[int]:
    return (index for index in range(mask.bit_length()) if mask >> index & 1)


# ---- the cycle ---------------------------------------------------------------------------------------------------------


def _shortest(slots: Slots, parts: Parts, most: int) -> Slots:
    """The shortest part of the slots that gives users what they get in the long run; or that comes closest to it."""
    passed = _slots_passed(slots, len(parts))
    best = (2.0, 0, 0)
    for length in range(1, most + 1):
        had = passed[length:] - passed[:-length]
        differs = np.abs(had / length - parts).max(axis=1) + (had.min(axis=1) < 1)
        first = int(differs.argmin())
        if differs[first] < best[0] - 1e-9:
            best = float(differs[first]), length, first
        if best[0] <= _CLOSE:
            break
    _, length, first = best
    return slots[first : first + length]


def _in_order(slots: Slots) -> tuple[Turn, ...]:
    """Equal slots are one turn. After each turn comes the one in which the fewest have to be parked."""
    lengths: dict[tuple[int, ...], int] = {}
    for who in slots:
        lengths[who] = lengths.get(who, 0) + 1
    left = list(lengths)
    order = [left.pop(0)]
    while left:
        before = set(order[-1])
        order.append(left.pop(max(range(len(left)), key=lambda at: (len(before.intersection(left[at])), -at))))
    return tuple((who, lengths[who]) for who in order)
