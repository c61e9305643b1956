"""Migrations in cells: a destination is a place to which the job has a right."""

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import MigrateRequested
from tests.policies.tenants import OPPORTUNISTIC, Tenants

FOURS = "four-2x2"


def test_a_job_with_devices_does_not_go_to_a_node_that_has_cpus_in_their_place() -> None:
    t = Tenants({"n1": "FOUR", "c1": "CPU4"})
    t.vc("A", (FOURS, "node", 1))
    job = t.ask("A", 2, guarantee=OPPORTUNISTIC)
    refusal = t.reply(MigrateRequested(job, ("c1",)))
    assert isinstance(refusal, FailedPrecondition)
    assert str(refusal) == f"job {job} needs 2 devices, and node c1 has 0 idle devices that it can use"
