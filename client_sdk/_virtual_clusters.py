"""What `Client` and `AsyncClient` ask of virtual clusters and cells."""

from collections.abc import Sequence

from client_sdk._base import Asking, AskingAsync
from client_sdk._requests import jobs
from client_sdk.models import CellQuota, PinnedCell, Pool, VirtualCluster, VirtualClusterPolicy


class VirtualClusterCalls(Asking):
    def virtual_clusters(self) -> Sequence[VirtualCluster]:
        """Every virtual cluster, with how its cells stand, in the order in which they were created.

        This and all that follows of virtual clusters and cells raises FailedPrecondition (NO_VIRTUAL_CLUSTERS) where the site
        has none.
        """
        return self._ask(jobs.ListVirtualClusters())

    def virtual_cluster(self, name: str) -> VirtualCluster:
        """A virtual cluster as it stands. Raises NotFound."""
        return self._ask(jobs.GetVirtualCluster(name))

    def create_virtual_cluster(
        self,
        name: str,
        *,
        quotas: Sequence[CellQuota] = (),
        pins: Sequence[PinnedCell] = (),
        weight: int = 1,
        policy: VirtualClusterPolicy | None = None,
        validate_only: bool = False,
    ) -> VirtualCluster:
        """Promises cells to a tenant. The same again is the same answer. The answer names the runs that lose their guarantee by
        it (`demoted`); with `validate_only` nothing is changed.

        Raises FailedPrecondition where all virtual clusters together could then not have what they own: its `metadata` names
        pool, level and how many are missing. AlreadyExists for another of that name, NotFound for a pool or level.
        """
        return self._ask(jobs.SetVirtualCluster("Create", name, quotas, pins, weight, policy, validate_only))

    def update_virtual_cluster(
        self,
        name: str,
        *,
        quotas: Sequence[CellQuota] | None = None,
        pins: Sequence[PinnedCell] | None = None,
        weight: int | None = None,
        policy: VirtualClusterPolicy | None = None,
        validate_only: bool = False,
    ) -> VirtualCluster:
        """Changes what is given; `quotas` and `pins` take the place of all that there were. Raises as the create does.

        What no longer fits runs on as opportunistic; nothing else moves. The answer names such runs (`demoted`); with
        `validate_only` nothing is changed.
        """
        return self._ask(jobs.SetVirtualCluster("Update", name, quotas, pins, weight, policy, validate_only))

    def delete_virtual_cluster(self, name: str) -> None:
        """Only one without live jobs. Raises FailedPrecondition, NotFound."""
        self._ask(jobs.DeleteVirtualCluster(name))

    def cells(self, *, pool: str = "", virtual_cluster: str = "") -> Sequence[Pool]:
        """The pools with their cells: whose each is, and how each device is held. Raises NotFound for a pool or virtual
        cluster that is not there."""
        return self._ask(jobs.ListCells(pool, virtual_cluster))


class AsyncVirtualClusterCalls(AskingAsync):
    async def virtual_clusters(self) -> Sequence[VirtualCluster]:
        """As `Client.virtual_clusters`."""
        return await self._ask(jobs.ListVirtualClusters())

    async def virtual_cluster(self, name: str) -> VirtualCluster:
        """As `Client.virtual_cluster`."""
        return await self._ask(jobs.GetVirtualCluster(name))

    async def create_virtual_cluster(
        self,
        name: str,
        *,
        quotas: Sequence[CellQuota] = (),
        pins: Sequence[PinnedCell] = (),
        weight: int = 1,
        policy: VirtualClusterPolicy | None = None,
        validate_only: bool = False,
    ) -> VirtualCluster:
        """As `Client.create_virtual_cluster`."""
        return await self._ask(jobs.SetVirtualCluster("Create", name, quotas, pins, weight, policy, validate_only))

    async def update_virtual_cluster(
        self,
        name: str,
        *,
        quotas: Sequence[CellQuota] | None = None,
        pins: Sequence[PinnedCell] | None = None,
        weight: int | None = None,
        policy: VirtualClusterPolicy | None = None,
        validate_only: bool = False,
    ) -> VirtualCluster:
        """As `Client.update_virtual_cluster`."""
        return await self._ask(jobs.SetVirtualCluster("Update", name, quotas, pins, weight, policy, validate_only))

    async def delete_virtual_cluster(self, name: str) -> None:
        """As `Client.delete_virtual_cluster`."""
        await self._ask(jobs.DeleteVirtualCluster(name))

    async def cells(self, *, pool: str = "", virtual_cluster: str = "") -> Sequence[Pool]:
        """As `Client.cells`."""
        return await self._ask(jobs.ListCells(pool, virtual_cluster))
