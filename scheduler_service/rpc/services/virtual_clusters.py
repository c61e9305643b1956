"""ebb.v1.VirtualClusters: what tenants are guaranteed, and the cells of the cluster.

What is shown follows from indices of the state, so the engine's thread is asked for it, between two steps.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ebb.v1 import virtual_clusters_pb2 as pb
from ebb.v1 import virtual_clusters_pb2_grpc

from scheduler_service.core.errors import AlreadyExists
from scheduler_service.core.handlers.virtual_clusters import find_vc, pools_of, vc_requested
from scheduler_service.core.messages import VcChanged, VcDeleteRequested, VcRequested
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.tenants.virtual_clusters import Quota, VcPolicy, VirtualCluster
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.registry import for_virtual_clusters
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.convert.cells import demoted_out, nodes_out, pins_in, pool_out, pools_asked, quotas_in, vc_out
from scheduler_service.rpc.convert.values import duration_in
from scheduler_service.rpc.interceptors import invalid
from scheduler_service.rpc.method_table import Context
from scheduler_service.run.engine_thread import EngineThread

T = TypeVar("T")

_NODES_AT_ONCE = 256
"""Nodes whose cells are read in one question: about 2 ms of the engine's time."""


class VirtualClusters(virtual_clusters_pb2_grpc.VirtualClustersServicer):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def CreateVirtualCluster(
        self, request: pb.CreateVirtualClusterRequest, _context: Context
    ) -> pb.CreateVirtualClusterResponse:
        policy = policy_in(request.policy, self._backend.vc_policy)
        quotas, pins, weight = quotas_in(request.quotas), pins_in(request.pins), request.weight or 1
        asked = VcRequested(request.name, create=True, quotas=quotas, pins=pins, weight=weight, policy=policy)
        try:
            return pb.CreateVirtualClusterResponse(virtual_cluster=await self._set_vc(asked, request.validate_only))
        except AlreadyExists:
            known = await self._row(request.name)
            if not _is_as(known, asked):
                raise
            return pb.CreateVirtualClusterResponse(virtual_cluster=await self._show_vc(request.name))

    async def UpdateVirtualCluster(
        self, request: pb.UpdateVirtualClusterRequest, _context: Context
    ) -> pb.UpdateVirtualClusterResponse:
        event = VcRequested(
            request.name,
            create=False,
            quotas=quotas_in(request.quotas.quotas) if request.HasField("quotas") else None,
            pins=pins_in(request.pins.pins) if request.HasField("pins") else None,
            weight=request.weight if request.HasField("weight") else None,
            policy=policy_in(request.policy, (await self._row(request.name)).policy) if request.HasField("policy") else None,
        )
        return pb.UpdateVirtualClusterResponse(virtual_cluster=await self._set_vc(event, request.validate_only))

    async def DeleteVirtualCluster(
        self, request: pb.DeleteVirtualClusterRequest, _context: Context
    ) -> pb.DeleteVirtualClusterResponse:
        await self._backend.leading.service.handle(VcDeleteRequested(request.name))
        return pb.DeleteVirtualClusterResponse()

    async def GetVirtualCluster(self, request: pb.GetVirtualClusterRequest, _context: Context) -> pb.GetVirtualClusterResponse:
        return pb.GetVirtualClusterResponse(virtual_cluster=await self._show_vc(request.name))

    async def ListVirtualClusters(
        self, _request: pb.ListVirtualClustersRequest, _context: Context
    ) -> pb.ListVirtualClustersResponse:
        every = await self._of_state(lambda state: [vc_out(state, row) for _, row in sorted(state.vcs.rows.items())])
        return pb.ListVirtualClustersResponse(virtual_clusters=every)

    async def ListCells(self, request: pb.ListCellsRequest, _context: Context) -> pb.ListCellsResponse:
        service = self._backend.leading.service
        names = await service.ask(lambda state, *_: pools_asked(state, request.pool, request.virtual_cluster))
        pools = [await _with_nodes(service, name, request.virtual_cluster) for name in names]
        return pb.ListCellsResponse(pools=[pool for pool in pools if pool is not None])

    async def _set_vc(self, event: VcRequested, validate_only: bool) -> pb.VirtualCluster:
        """Return the virtual cluster after the event, or as it would be after it (`validate_only`)."""

        def show_vc(state: State, demoted: Sequence[RunKey]) -> pb.VirtualCluster:
            found = vc_out(state, find_vc(state, event.name))
            found.demoted.extend(demoted_out(state, demoted))
            return found

        def would_be(state: State, now: Micros, *_: object) -> pb.VirtualCluster:
            return show_vc(state, vc_requested(state, event, now).demoted)

        if validate_only:
            return await self._backend.leading.service.ask(would_be)
        reply = await self._backend.leading.service.handle(event)
        assert isinstance(reply, VcChanged)
        return await self._of_state(lambda state: show_vc(state, reply.demoted))

    async def _show_vc(self, name: str) -> pb.VirtualCluster:
        return await self._of_state(lambda state: vc_out(state, find_vc(state, name)))

    async def _row(self, name: str) -> VirtualCluster:
        return await self._of_state(lambda state: find_vc(state, name))

    async def _of_state(self, question: Callable[[State], T]) -> T:
        """Answer a question on the engine's thread. Raises FailedPrecondition if the site has no virtual clusters."""

        def ask_with_pools(state: State, *_: object) -> T:
            pools_of(state)
            return question(state)

        return await self._backend.leading.service.ask(ask_with_pools)


async def _with_nodes(service: EngineThread, pool: str, vc: str) -> pb.Pool | None:
    """The pool with its nodes; None: it is gone by now."""
    found = await service.ask(lambda state, *_: pool_out(state, pool))
    if found is None:
        return None
    shown, slots = found
    for first in range(0, len(slots), _NODES_AT_ONCE):
        some = slots[first : first + _NODES_AT_ONCE]
        shown.nodes.extend(await service.ask(lambda state, *_, some=some: nodes_out(state, pool, some, vc)))
    return shown


def policy_in(asked: pb.VirtualClusterPolicy, otherwise: VcPolicy) -> VcPolicy:
    """Return the policy; unset fields are taken from `otherwise`. Raises InvalidArgument for an unknown policy."""
    given: dict[str, Any] = {name: getattr(asked, name) for name in ("s", "cap", "proxy_keep") if asked.HasField(name)}
    for name in ("proxy_after", "proxy_window"):
        if asked.HasField(name):
            given[f"{name}_us"] = duration_in(getattr(asked, name))
    if asked.HasField("trials_in_flight"):
        given["trials_in_flight"] = asked.trials_in_flight or None
    if asked.name or asked.settings:
        before = {} if asked.name else dict(otherwise.settings)
        given["settings"] = tuple(sorted({**before, **asked.settings}.items()))
    policy = otherwise._replace(name=asked.name or otherwise.name, **given)
    if policy.name not in (known := for_virtual_clusters()):
        raise invalid("policy.name", "policy.known", f"there is no {policy.name!r}; there are {', '.join(known)}")
    if policy.proxy_after_us and (policy.proxy_window_us or policy.proxy_after_us) < SECOND:
        field = "policy.proxy_window" if policy.proxy_window_us else "policy.proxy_after"
        raise invalid(field, "proxy.least", "must be a second at least; when an offer's time is over, the next one is posted")
    if policy.settings:
        try:
            stages_within(policy)
        except ValueError as error:
            raise invalid("policy.settings", "settings.known", str(error)) from None
    return policy


def _is_as(known: VirtualCluster, asked: VcRequested) -> bool:
    """Whether it is what was asked for: then the request is a repetition."""
    same = (known.weight, known.policy) == (asked.weight, asked.policy)
    return same and _counts(known.quotas) == _counts(asked.quotas or ()) and set(known.pins) == set(asked.pins or ())


def _counts(quotas: tuple[Quota, ...]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for quota in quotas:
        counts[quota.pool, quota.level] += quota.cells
    return counts
