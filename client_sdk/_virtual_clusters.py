"""The calls of `Client` and `AsyncClient` for virtual clusters and cells."""

from collections.abc import Sequence

from client_sdk._base import Asking, AskingAsync
from client_sdk._requests import jobs
from client_sdk.models import CellQuota, PinnedCell, Pool, VirtualCluster, VirtualClusterPolicy


class VirtualClusterCalls(Asking):
    def virtual_clusters(self) -> Sequence[VirtualCluster]:
        """Every virtual cluster, with its current use, in the order of creation.

        This and the following calls for virtual clusters and cells raise FailedPrecondition (NO_VIRTUAL_CLUSTERS) on a site
        without virtual clusters.
        """
        return self._ask(jobs.ListVirtualClusters())

    def virtual_cluster(self, name: str) -> VirtualCluster:
        """A virtual cluster, with its current use. Raises NotFound."""
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
        """Creates a virtual cluster, which guarantees cells to a tenant. Safe to repeat. The answer lists the runs that lose
        their guarantee (`demoted`); with `validate_only` nothing is changed.

        Raises FailedPrecondition if all virtual clusters together would own more cells than exist: its `metadata` has the pool,
        the level and the missing number. Raises AlreadyExists for a different one of that name, NotFound for a pool or level.
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
        """Changes what is given; `quotas` and `pins` replace all existing ones. Raises the same errors as the create.

        Runs that no longer fit keep running as opportunistic; no run moves. The answer lists them (`demoted`); with
        `validate_only` nothing is changed.
        """
        return self._ask(jobs.SetVirtualCluster("Update", name, quotas, pins, weight, policy, validate_only))

    def delete_virtual_cluster(self, name: str) -> None:
        """Deletes a virtual cluster that has no live jobs. Raises FailedPrecondition and NotFound."""
        self._ask(jobs.DeleteVirtualCluster(name))

    def cells(self, *, pool: str = "", virtual_cluster: str = "") -> Sequence[Pool]:
        """The pools with the owners of their cells and the use of their devices. Raises NotFound for a pool or virtual
        cluster that does not exist."""
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
