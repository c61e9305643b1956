"""Deletes snapshots and results that no job needs any more, as long as this scheduler leads."""

import asyncio
import logging

from scheduler_service.core.model.values import SECOND
from scheduler_service.rpc.backend import Backend
from scheduler_service.run.ports import NotCommitted
from scheduler_service.run.token_cache import wall_clock

log = logging.getLogger(__name__)

INTERVAL = 3600.0
"""Seconds."""
_DAY = 86400 * SECOND


async def expire_files(backend: Backend, keep_days: float) -> None:
    """Never ends by itself. Where the database does not answer, that is tried again later."""
    while True:
        await asyncio.sleep(INTERVAL)
        if backend.files is None:
            continue
        try:
            count = await backend.in_files(backend.files.expire, wall_clock() - round(keep_days * _DAY))
        except NotCommitted as error:
            log.warning("snapshots and results that no job needs are not deleted now: %s", error)
        else:
            if count:
                log.info("deleted %d snapshots and results that no job has needed for %g days", count, keep_days)
