"""Wires the scheduler together, and the only place that does: database, lease, engine, gRPC."""

import asyncio
import contextlib
import getpass
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ebb_common.notify import Notifier
from scheduler_service import store
from scheduler_service.config import Config
from scheduler_service.database import Engines, FileLimits, Lease, Reader, UserFiles
from scheduler_service.engine_settings import micros, vc_policy_of
from scheduler_service.leadership_term import STOP_LIMIT, Outrun, exit_timer, lead_under_lease
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.server import Health, serving
from scheduler_service.run.leadership import wait_to_lead
from scheduler_service.run.ports import DatabaseOlder, LeadershipLost, NotCommitted
from scheduler_service.run.token_cache import Tokens
from scheduler_service.secret_arguments import SecretArguments
from scheduler_service.startup import ClockBehind, Contradiction

log = logging.getLogger("ebb.scheduler")


async def serve(config: Config) -> None:
    """Runs the scheduler until SIGTERM or SIGINT. Raises what keeps it from starting or from going on."""
    stop = asyncio.Event()
    halt = threading.Event()
    guards = contextlib.ExitStack()
    systemd = Notifier()
    watchdog = asyncio.create_task(systemd.watchdog())
    guards.callback(watchdog.cancel)

    def end() -> None:
        systemd.stopping()
        stop.set()
        halt.set()
        guard = exit_timer(2 * STOP_LIMIT, "something does not end, most likely because the database does not answer")
        guards.callback(guard.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    sys.setswitchinterval(0.001)  # the engine's thread must not keep the event loop waiting for 5 ms
    with guards:
        async with _database(config, end) as url:
            with (
                contextlib.closing(Engines(url, config.lease)) as engines,
                contextlib.closing(_backend(config, engines)) as backend,
            ):
                async with _tokens(config, engines) as tokens, serving(config.listen, backend, config.tls, tokens) as served:
                    address, health = served
                    await asyncio.to_thread(_migrate, url)
                    lease = Lease(engines.lease, _holder(config), config.lease, config.advertise or address)
                    announce = partial(_announce, config, health, address, systemd)
                    systemd.status("stands by")
                    systemd.ready()  # it answers reads, whether or not it leads
                    await _lead_again_and_again(config, backend, engines, lease, stop, halt, announce)


def _backend(config: Config, engines: Engines) -> Backend:
    reader = Reader(engines.reader)
    times = micros(config.default_grace), config.heartbeat, config.silent_after
    secrets = SecretArguments(config.secret_arguments)
    limits = FileLimits(config.snapshot_mib << 20, config.result_mib << 20, config.files_of_user_mib << 20)
    files = UserFiles(engines.files, limits)
    return Backend(reader, getpass.getuser(), *times, config.virtual_clusters, vc_policy_of(config), secrets, files)


@asynccontextmanager
async def _tokens(config: Config, engines: Engines) -> AsyncIterator[Tokens | None]:
    """Look up callers by their tokens; yields None if the site does not authenticate callers."""
    if config.auth == "none":
        yield None
        return
    tokens = Tokens(Reader(engines.tokens).find_tokens)
    tokens.start()
    try:
        yield tokens
    finally:
        tokens.stop()


async def _lead_again_and_again(
    config: Config,
    backend: Backend,
    engines: Engines,
    lease: Lease,
    stop: asyncio.Event,
    halt: threading.Event,
    announce: Callable[[int, bool], Coroutine[Any, Any, None]],
) -> None:
    """Wait to lead, lead, and wait again, until stopped. The pause grows when leaderships fail soon after they start."""
    pause = 0.0
    forgetful = False
    while not stop.is_set():
        epoch = await asyncio.to_thread(wait_to_lead, lease, config.lease, halt)
        if epoch is None:
            return
        began = time.monotonic()

        async def announce_once(leads: bool, epoch: int = epoch) -> None:
            nonlocal forgetful
            if leads:  # what was forgotten is skipped now, once
                forgetful = False
            await announce(epoch, leads)

        try:
            await lead_under_lease(config, backend, engines, lease, epoch, stop, announce_once, forgetful)
        except ClockBehind:
            raise
        except Outrun as met:
            log.warning("stepping down: %s, this is %d: was the database restored from a backup? Leading above it", met, epoch)
            lease.above = max(lease.above, met.epoch)
            forgetful = True
            continue
        except DatabaseOlder as error:
            log.error("stepping down: %s", error)
            forgetful = True
        except Contradiction as error:
            log.critical("stepping down: %s", error)
        except (*store.DATABASE_ERRORS, NotCommitted, LeadershipLost, OSError) as error:
            log.error("stepping down: %s", store.one_line(error))
        except Exception:  # a fault of Ebb's own: what there is to know of it is in the log
            log.exception("stepping down")
        pause = 0.2 if time.monotonic() - began > 60 else min(max(2 * pause, 0.2), 30)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stop.wait()


def _holder(config: Config) -> str:
    """Who holds the lease. The folder of an embedded database has one user at a time, which need not wait for itself."""
    if config.embedded is not None:
        return f"{socket.gethostname()}:{config.embedded.absolute()}"
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4()}"


@asynccontextmanager
async def _database(config: Config, end: Callable[[], None]) -> AsyncIterator[str]:
    """The database's URL. An embedded server is watched: when it dies, the process ends, to be started again."""
    if config.database is not None:
        yield config.database
        return
    assert config.embedded is not None
    embedded = store.Embedded(config.embedded)
    url = await asyncio.to_thread(embedded.start)

    async def watch() -> None:
        while embedded.running:
            await asyncio.sleep(0.5)
        log.critical("the embedded PostgreSQL in %s has ended", embedded.place)
        end()

    watching = asyncio.create_task(watch())
    try:
        yield url
        if not embedded.running:
            raise store.EmbeddedError(embedded.place, "its server has ended by itself; see its log there, and start again")
    finally:
        watching.cancel()
        await asyncio.to_thread(embedded.stop)


def _migrate(url: str) -> None:
    engine = store.open_engine(url, connections=1)
    try:
        store.migrate(engine)
    finally:
        engine.dispose()


async def _announce(config: Config, health: Health, address: str, systemd: Notifier, epoch: int, leads: bool) -> None:
    """Report to health checks, systemd and the address file whether this scheduler leads."""
    systemd.status(f"leads in epoch {epoch}" if leads else "stands by")
    await health.serving(leads)
    if config.address_file is None:
        return
    if leads:
        draft = config.address_file.with_name(config.address_file.name + ".new")
        draft.write_text(address + "\n")
        Path(draft).replace(config.address_file)
    else:
        config.address_file.unlink(missing_ok=True)
