"""Which of several schedulers is asked next: decisions alone, no I/O."""

from collections.abc import Sequence

_DOUBT = 2.0
"""Seconds for which nobody is sent to a scheduler that was named as the leader and did not answer."""


class Following:
    """Follows the leader: to where a standby says it is, else to the next of the addresses that were given.

    Until a lost leader is replaced, standbys name it. So a leader that was named and does not answer is left out for a while:
    one that hangs costs a second for each try, in which a standby may have taken over.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self.given = given
        self.address = given[0]
        """The address for the next try: the leader's, once that is known."""
        self._last = 0
        """The index in `given` of the address tried last."""
        self._named = False
        """Whether `address` was named by a standby and has not worked since."""
        self._doubted: dict[str, float] = {}

    def note_success(self) -> None:
        """The scheduler at `address` has answered as the leader."""
        self._named = False
        if self._doubted:
            self._doubted.clear()

    def note_failure(self, leader: str, answered: bool, now: float) -> None:
        """The try at `address` failed. If the scheduler there `answered`, `leader` is who leads by its word, or empty."""
        if self.address in self.given:
            self._last = self.given.index(self.address)
        if self._named and not answered:
            self._doubted[self.address] = now + _DOUBT
        self._named = bool(leader) and self._is_trusted(leader, now)
        if self._named:
            self.address = leader
            return
        turn = [*self.given[self._last + 1 :], *self.given[: self._last + 1]]
        self.address = next((address for address in turn if self._is_trusted(address, now)), turn[0])

    def _is_trusted(self, address: str, now: float) -> bool:
        return self._doubted.get(address, now) <= now
