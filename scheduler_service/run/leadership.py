"""Leadership: a lease in the database, taken before anything is served and renewed by a thread of its own.

The lease only says who should lead. That no other can write is the fence in every commit.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)


POLL = 0.25
"""Seconds between two looks of a standby at the lease, at most."""


class Lease(Protocol):
    """The lease row. Each call may raise: then it is simply tried again."""

    def take(self) -> int | None:
        """The new epoch, or None while another scheduler holds a valid lease."""

    def renew(self, epoch: int) -> bool: ...

    def release(self, epoch: int) -> None: ...

    def leader(self) -> str:
        """Return the address of the holder of a valid lease; empty if no scheduler holds one."""


def wait_to_lead(lease: Lease, ttl: float, stop: threading.Event) -> int | None:
    """Blocks until the lease is ours and returns the epoch; None when `stop` was set first. Blocks: call it off the loop."""
    said = ""
    while not stop.is_set():
        try:
            if (epoch := lease.take()) is not None:
                return epoch
            leader = lease.leader()
            now = f"{leader} leads" if leader else "nobody leads, and the lease is about to be free"
        except Exception as error:
            now = f"the database cannot be asked for the lease: {error}"
        if now != said:
            log.info("standing by: %s", now)
            said = now
        stop.wait(min(POLL, ttl / 5))
    return None


class Renewal:
    """Renews the lease `every` so many seconds, from when it is made until `end`; calls `lost` once if another took it.

    `valid_until` (monotonic seconds) is how long this scheduler may believe that it leads, should renewing hang or fail.
    """

    def __init__(self, lease: Lease, epoch: int, ttl: float, every: float, lost: Callable[[], None]) -> None:
        self.valid_until = time.monotonic() + ttl
        self._lease = lease
        self._epoch = epoch
        self._ttl = ttl
        self._every = every
        self._lost = lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stops renewing and gives the lease back, so that the next leader need not wait. Blocks for a lease's time at most."""
        self._stop.set()
        self._thread.join(self._ttl)
        if self._thread.is_alive():
            log.warning("could not give the lease back: the database does not answer")
            return
        try:
            self._lease.release(self._epoch)
        except Exception as error:
            log.warning("could not give the lease back: %s", error)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            asked = time.monotonic()
            try:
                if not self._lease.renew(self._epoch):
                    log.error("stepping down: another scheduler has taken the lease")
                    self._lost()
                    return
                self.valid_until = asked + self._ttl
            except Exception as error:
                log.warning("could not renew the lease: %s", error)
