"""The files of users in memory."""

import hashlib

from scheduler_service.core.model.values import Micros
from scheduler_service.store.errors import DamagedFile, TooMuchStored
from scheduler_service.store.memory.database import File, Memory
from scheduler_service.store.user_files import UserFile


def use_file(memory: Memory, owner: str, name: str, now: Micros) -> UserFile | None:
    with memory.lock:
        found = memory.files.get((owner, name))
        if found is None:
            return None
        found.used_us = now
        return UserFile(found.size, len(found.data), found.complete)


def put_piece(
    memory: Memory, owner: str, name: str, size: int, at: int, data: bytes, now: Micros, digest: str = "", most: int = 0
) -> UserFile:
    with memory.lock:
        known = memory.files.get((owner, name))
        kept = known or File(size, now)
        stored = len(kept.data)
        if kept.complete or stored != at or kept.size != size or at + len(data) > size:
            return UserFile(kept.size, stored, kept.complete)
        if at == 0 and most:
            used = sum(each.size for (whose, which), each in memory.files.items() if whose == owner and which != name)
            if used + size > most:
                raise TooMuchStored(owner=owner, used=used, size=size, most=most)
        memory.files[(owner, name)] = kept
        kept.data += data
        kept.used_us = now
        kept.complete = len(kept.data) == size
        if kept.complete and digest and hashlib.sha256(kept.data).hexdigest() != digest:
            del memory.files[(owner, name)]
            raise DamagedFile(name=name)
        return UserFile(size, len(kept.data), kept.complete)


def read_piece(memory: Memory, owner: str, name: str, at: int) -> tuple[bytes, int] | None:
    with memory.lock:
        found = memory.files.get((owner, name))
        return None if found is None or not found.complete else (bytes(found.data[at : at + (1 << 20)]), found.size)


def expire_files(memory: Memory, before: Micros) -> int:
    with memory.lock:
        recent = [job for job in memory.tables["job"].records.values() if job["ended_us"] is None or job["ended_us"] >= before]
        kept = {(job["user_name"], name) for job in recent for name in (job["spec_more"] or {}).get("snapshots", ())}
        results = {(job["user_name"], f"result-{job['id']}") for job in recent}
        old = [
            (owner, name)
            for (owner, name), found in memory.files.items()
            if found.used_us < before and (owner, name) not in kept and (owner, name.partition(".")[0]) not in results
        ]
        for key in old:
            del memory.files[key]
        return len(old)
