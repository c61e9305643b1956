"""What of a virtual cluster is refused before anybody can rely on it."""

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import NodeSeen, VcRequested
from scheduler_service.core.topology import Inventory
from scheduler_service.core.values import Vector
from scheduler_service.core.vc import Quota
from tests.policies.tenants import Tenants


def test_nobody_owns_cells_without_devices() -> None:
    tenants = Tenants({})
    tenants.step(NodeSeen("cpu-1", "a", Inventory(Vector(32_000, 65_536, 0))))
    refused = tenants.reply(VcRequested("A", True, (Quota("cpu", "node", 1),)))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "POOL_WITHOUT_DEVICES"
    assert not tenants.state.vcs.rows
