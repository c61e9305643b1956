"""The gRPC server: which services there are, and on what terms."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
from ebb.agent.v1 import agent_link_pb2_grpc
from ebb.v1 import (
    cluster_pb2_grpc,
    exchange_pb2_grpc,
    scheduler_pb2_grpc,
    snapshots_pb2_grpc,
    virtual_clusters_pb2_grpc,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection_pb2_grpc

from scheduler_service.certificates import TlsFiles
from scheduler_service.rpc import reflection, tls
from scheduler_service.rpc.access import MAY, Access
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.decoding import decode_requests
from scheduler_service.rpc.interceptors import answer_errors, check_requests
from scheduler_service.rpc.method_table import Layer, Methods
from scheduler_service.rpc.receiving import LARGEST_MESSAGE, OneRequest
from scheduler_service.rpc.services.agent_link import AgentLink
from scheduler_service.rpc.services.cluster import Cluster
from scheduler_service.rpc.services.exchange import Exchange
from scheduler_service.rpc.services.logs import Transfers
from scheduler_service.rpc.services.scheduler import Scheduler
from scheduler_service.rpc.services.snapshots import Snapshots
from scheduler_service.rpc.services.virtual_clusters import VirtualClusters
from scheduler_service.rpc.user_turns import FILES, FILES_AT_ONCE, FILES_WAITING_EACH, Turns
from scheduler_service.run.token_cache import Tokens

log = logging.getLogger(__name__)

SERVICES = tuple(dict.fromkeys(method.split("/")[1] for method in MAY if method.startswith("/ebb.")))
MOST_UNSEEN = 50_000
"""Calls that may wait until the event loop gets to them. From 1,000 on, gRPC would end some of them at random, and any of
them from 3,000 on: as CANCELLED, whosever they are. A cluster whose agents all connect again has as many."""
STREAMS_EACH = 100
"""Calls under way on one connection. Further ones wait at their client."""
HANDSHAKE_LIMIT_MS = 10_000
"""Within which a new connection must have done its handshakes, of TLS and of HTTP/2."""
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.so_reuseport", 0),  # a second scheduler on the same port is a mistake, not a partner
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # No client of Ebb compresses, and what a compressed message unpacks to has no limit.
    ("grpc.per_message_decompression", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_concurrent_streams", STREAMS_EACH),
    ("grpc.http.overload_protection", 0),  # which refuses calls at random where earlier ones are not cleaned up yet
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_LIMIT_MS),
    # What comes in is small, but for logs, of which no more is to wait here than its reader takes: not the megabytes that
    # gRPC would let in ahead where it finds the network fast.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server.max_pending_requests", MOST_UNSEEN),
    ("grpc.server.max_pending_requests_hard_limit", MOST_UNSEEN),
)


class Health:
    """The status that grpc.health.v1 answers."""

    def __init__(self, servicer: Any) -> None:
        self._servicer = servicer

    async def serving(self, leads: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if leads else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *SERVICES):
            await self._servicer.set(name, status)


@asynccontextmanager
async def serving(
    listen: str,
    backend: Backend,
    tls_files: TlsFiles | None = None,
    tokens: Tokens | None = None,
    transfers: Transfers | None = None,
    outermost: Sequence[Layer] = (),
) -> AsyncIterator[tuple[str, Health]]:
    """Serves on HOST:PORT while the context lasts; gives the address with its real port.

    With `tls_files` it speaks TLS alone, and with `tokens` it asks every caller for one. `transfers`: the logs that agents of
    this process are asked for, too. `outermost`: layers around all others.
    It answers from the start, and says that it does not lead until it does. Raises RuntimeError when the port is taken.
    """
    transfers = Transfers() if transfers is None else transfers
    access = Access(backend, tokens)
    layers: tuple[Layer, ...] = (
        *outermost,
        partial(answer_errors, backend),
        access.admit_callers,
        OneRequest().receive_request,
        Turns().serve_in_turn,
        Turns(FILES_AT_ONCE, FILES_WAITING_EACH, FILES).serve_in_turn,
        decode_requests,
        partial(check_requests, backend),
        access.restrict_to_owners,
    )
    methods: Any = Methods(layers)
    scheduler_pb2_grpc.add_SchedulerServicer_to_server(Scheduler(backend, transfers), methods)
    cluster_pb2_grpc.add_ClusterServicer_to_server(Cluster(backend), methods)
    virtual_clusters_pb2_grpc.add_VirtualClustersServicer_to_server(VirtualClusters(backend), methods)
    exchange_pb2_grpc.add_ExchangeServicer_to_server(Exchange(backend), methods)
    snapshots_pb2_grpc.add_SnapshotsServicer_to_server(Snapshots(backend), methods)
    agent_link_pb2_grpc.add_AgentLinkServicer_to_server(AgentLink(backend, transfers), methods)
    servicer = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, methods)
    reflecting = reflection.servicer((*SERVICES, "grpc.health.v1.Health"))
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflecting, methods)
    server = grpc.aio.server(handlers=[methods], options=_OPTIONS)
    try:
        if tls_files is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, tls.credentials(tls_files))
    except RuntimeError:
        raise RuntimeError(f"cannot listen on {listen}: the port is taken, or the address is not this machine's") from None
    address = f"{listen.rpartition(':')[0]}:{port}"
    health = Health(servicer)
    await health.serving(False)
    await server.start()
    log.info("serving on %s, %s, %s", address, _encryption(tls_files), "callers show a token" if tokens else "to whoever asks")
    try:
        yield address, health
    finally:
        await server.stop(grace=1)


def _encryption(files: TlsFiles | None) -> str:
    if files is None:
        return "not encrypted"
    return "with TLS" if files.client_ca is None else "with mutual TLS"
