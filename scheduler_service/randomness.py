"""The randomness of a step, which follows from the cluster's seed and the commit's number alone."""

from random import Random


class Drawing:
    """Draws from `Random("<seed>:<commit_no>")`. Few steps draw anything, and seeding costs as much as a small step: it is
    put off until the first draw."""

    __slots__ = ("_random", "_seed")

    def __init__(self, seed: int, commit_no: int) -> None:
        self._seed = seed, commit_no
        self._random: Random | None = None

    def randrange(self, stop: int, /) -> int:
        if self._random is None:
            self._random = Random(f"{self._seed[0]}:{self._seed[1]}")
        return self._random.randrange(stop)
