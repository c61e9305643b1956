"""The lease in memory: by the clock of the Memory, and without the sessions of PostgreSQL."""

from scheduler_service.store.lease import Lease, check_asked, is_free
from scheduler_service.store.memory.database import Memory


def take(memory: Memory, holder: str, ttl: float, force: bool = False, address: str = "", above: int = 0) -> int | None:
    check_asked(holder, ttl)
    with memory.lock:
        if not force and memory.holder not in ("", holder) and not is_free(memory.expires_at - memory.clock()):
            return None
        memory.holder, memory.address, memory.expires_at = holder, address, memory.clock() + ttl
        memory.epoch = max(memory.epoch, above) + 1
        return memory.epoch


def renew(memory: Memory, epoch: int, ttl: float) -> bool:
    with memory.lock:
        if memory.epoch != epoch or not memory.holder:
            return False
        memory.expires_at = memory.clock() + ttl
        return True


def release(memory: Memory, epoch: int) -> None:
    with memory.lock:
        if memory.epoch == epoch:
            memory.holder, memory.address, memory.expires_at = "", "", memory.clock()


def holder(memory: Memory) -> Lease:
    with memory.lock:
        left = memory.expires_at - memory.clock()
        return Lease(memory.holder, memory.address, memory.epoch, left, in_session=memory.holder != "")
