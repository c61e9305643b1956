"""The fairest parts of a cycle that users of devices can have: an exact oracle, by linear programs over all turns that leave no
device idle that somebody could have (max-min fairness)."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

Numbers = Sequence[int | Fraction]


def fairest(wants: Sequence[int]) -> list[Fraction]:
    """The part of each user; `wants` are masks of devices."""
    return _fairest(_turns(wants), len(wants))


def fairest_anywhere(sizes: Sequence[int], devices: int) -> list[Fraction]:
    """The part of each user of so many devices, if all could change their devices all the time."""
    sets = (frozenset(chosen) for count in range(len(sizes) + 1) for chosen in combinations(range(len(sizes)), count))
    return _fairest([each for each in sets if sum(sizes[user] for user in each) <= devices], len(sizes))


def _fairest(turns: Sequence[frozenset[int]], count: int) -> list[Fraction]:
    done: dict[int, Fraction] = {}
    while len(done) < count:
        least = _most(turns, done, count, None)
        raised = {user for user in range(count) if user not in done and _most(turns, done, count, (user, least)) > least}
        assert len(raised) + len(done) < count
        done |= {user: least for user in range(count) if user not in done and user not in raised}
    return [done[user] for user in range(count)]


def _turns(wants: Sequence[int]) -> list[frozenset[int]]:
    """Users that can execute together, and beside whom nobody else can."""
    found: list[frozenset[int]] = []

    def add(user: int, chosen: frozenset[int], held: int) -> None:
        if user == len(wants):
            if all(other in chosen or wants[other] & held for other in range(len(wants))):
                found.append(chosen)
            return
        if not wants[user] & held:
            add(user + 1, chosen | {user}, held | wants[user])
        add(user + 1, chosen, held)

    add(0, frozenset(), 0)
    return found


def _most(turns: Sequence[frozenset[int]], done: dict[int, Fraction], count: int, one: tuple[int, Fraction] | None) -> Fraction:
    """The most that all users who are not done can have; or that one of them can, if all have so much."""
    rows: list[Numbers] = [[1] * len(turns) + [0]]
    limits: list[int | Fraction] = [1]
    for user in range(count):
        rows.append([-int(user in turn) for turn in turns] + [int(user not in done and one is None)])
        limits.append(-done[user] if user in done else 0 if one is None else -one[1])
    goal = [0] * len(turns) + [1] if one is None else [int(one[0] in turn) for turn in turns] + [0]
    return maximum(goal, rows, limits)


def maximum(goal: Numbers, rows: Sequence[Numbers], limits: Numbers) -> Fraction:
    """The most of `goal` x with `rows` x <= `limits` and x >= 0, which is possible: the simplex method with Bland's rule."""
    count, width = len(rows), len(goal)
    unit = [[Fraction(int(i == j)) for j in range(count)] for i in range(count)]
    table = [
        [*map(Fraction, row), *unit[i], Fraction(-1), Fraction(limits[i])] for i, row in enumerate(rows)
    ]  # variables, slacks, one that makes any limits possible, limits
    basis = list(range(width, width + count))
    helper = width + count
    if min(limits) < 0:
        _pivot(table, basis, min(range(count), key=lambda i: table[i][-1]), helper)
        assert _climb(table, basis, [Fraction(0)] * helper + [Fraction(-1)], helper + 1) == 0
        if helper in basis:
            row = basis.index(helper)
            _pivot(table, basis, row, next(j for j in range(helper) if table[row][j]))
    return _climb(table, basis, [*map(Fraction, goal), *[Fraction(0)] * (count + 1)], helper)


def _climb(table: list[list[Fraction]], basis: list[int], goal: list[Fraction], columns: int) -> Fraction:
    while True:
        gains = [goal[j] - sum(goal[basis[i]] * row[j] for i, row in enumerate(table)) for j in range(columns)]
        column = next((j for j, gain in enumerate(gains) if gain > 0), None)
        if column is None:
            return sum((goal[basis[i]] * row[-1] for i, row in enumerate(table)), Fraction(0))
        bounds = [(row[-1] / row[column], basis[i], i) for i, row in enumerate(table) if row[column] > 0]
        _pivot(table, basis, min(bounds)[2], column)


def _pivot(table: list[list[Fraction]], basis: list[int], row: int, column: int) -> None:
    table[row] = [each / table[row][column] for each in table[row]]
    for i, other in enumerate(table):
        if i != row and other[column]:
            table[i] = [a - other[column] * b for a, b in zip(other, table[row], strict=True)]
    basis[row] = column
