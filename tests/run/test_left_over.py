"""What an operator is told of who starts the scheduler with another configuration than before."""

from dataclasses import replace

import pytest

from scheduler_service.config import Config
from scheduler_service.core.model import JobState
from scheduler_service.core.model.settings import PoolPlan, Settings
from scheduler_service.core.state.journal import Change
from scheduler_service.core.state.state import State
from scheduler_service.startup import Contradiction, left_over
from scheduler_service.store import memory
from scheduler_service.store.memory import Memory, load
from tests.core.driver import Driver
from tests.policies.tenants import OPPORTUNISTIC, Tenants
from tests.run.live import load_state

FOURS = "four-2x2"


def anew(before: Driver, settings: Settings) -> list[str]:
    """What is said after a restart with these settings."""
    state = State(before.state.cluster, settings, before.state.order_of)
    tables = (table for table in before.state.tables() if table.name != "cluster")
    state.restore((table.name, key, row) for table in tables for key, row in table.rows.items())
    return list(left_over(state))


def test_of_a_pool_with_another_name_it_is_said_whose_cells_are_gone() -> None:
    tenants = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    tenants.vc("A", (FOURS, "node", 1), pins=[("mine", FOURS, "device", 8)])
    tenants.vc("B")
    assert anew(tenants, tenants.state.settings) == []
    (told,) = anew(tenants, Settings(pools=(PoolPlan("named", ("one", "two")),)))
    assert told.startswith(f"virtual cluster A owns cells that there are not: 1 node of {FOURS}, pin mine in {FOURS}. ")
    assert told.endswith("ebb vc update A --quota ...")


def test_who_is_in_cells_of_the_old_name_is_guaranteed_in_those_of_the_new_one() -> None:
    """Once it is said what its virtual cluster owns; and nobody is guaranteed beyond that."""
    before = Tenants(dict.fromkeys(("one", "two"), "FOUR"))
    before.vc("A", (FOURS, "node", 2))
    jobs = [before.ask("A", 4), before.ask("A", 4)]
    after = Tenants({}, [PoolPlan("named", ("one", "two"))])
    after.now, after.runs, after.sent = before.now, before.runs, before.sent
    after.state = State(before.state.cluster, after.state.settings, before.state.order_of)
    tables = (table for table in before.state.tables() if table.name != "cluster")
    after.state.restore((table.name, key, row) for table in tables for key, row in table.rows.items())
    after.change("A", ("named", "node", 1))
    assert [after.guaranteed(job) for job in jobs] == [True, False]
    assert list(after.owned().items()) == [(("named", "node", 0), "A")]
    waits = after.ask("A", 4)
    after.end(jobs[0])
    assert after.guaranteed(jobs[1])
    assert after.job(waits).state is JobState.QUEUED


def test_jobs_that_queue_and_can_never_start_are_counted_and_those_that_run_and_would_not_start_again() -> None:
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", (FOURS, "node", 1))
    running, waits, _ = (tenants.ask("A", 4) for _ in range(3))
    wait, run = anew(tenants, Settings())
    assert wait == f"2 jobs of virtual clusters wait forever, the first is {waits}: cancel them"
    assert run == (
        f"1 jobs of virtual clusters run, or are suspended, the first is {running}: nobody is guaranteed anything, and once "
        "one has left it waits forever. Let them end, or cancel them and submit them anew"
    )
    d = Driver()
    d.join()
    jobs = [d.submit(devices=8), d.submit(devices=8)]
    wait, run = anew(d, Settings(pools=()))
    assert wait == f"1 jobs without a virtual cluster wait forever, the first is {jobs[1]}: cancel them"
    assert run == (
        f"1 jobs without a virtual cluster run, or are suspended, the first is {jobs[0]}: they leave when somebody wants cells "
        "of its own, and once one has left it waits forever. Let them end, or cancel them and submit them anew"
    )


def test_what_is_put_right_when_the_state_is_loaded_is_in_the_database_before_anybody_leads() -> None:
    """So a recording begins with it, and it is not done again."""
    database, config = Memory(), Config(database="postgresql://nowhere", virtual_clusters=True)  # type: ignore[arg-type]
    epoch = memory.take(database, "tester", 60)
    assert epoch is not None
    tenants = Tenants({"one": "FOUR"})
    tenants.vc("A", (FOURS, "node", 1))
    tenants.vc("B")
    tenants.ask("B", 4, guarantee=OPPORTUNISTIC)
    tenants.ask("A", 4)
    rows = [Change(table.name, key, None, row) for table in tenants.state.tables() for key, row in table.rows.items()]
    memory.commit(database, epoch, rows, [])
    for virtual_clusters, left in ((True, 1), (False, 0), (False, 0)):
        for _ in range(2):
            state, view, writer = load_state(database, epoch, config.model_copy(update={"virtual_clusters": virtual_clusters}))
            writer.close()
            assert (len(state.earmarks.rows), len(view.earmarks)) == (left, left)
            assert view.commit_no == load(database).commit_no
            again, _, other = load_state(database, epoch, config.model_copy(update={"virtual_clusters": virtual_clusters}))
            other.close()
            assert again.snapshot() == state.snapshot()
    assert state.bindings.rows, "that nothing is kept there any more is seen where there are virtual clusters"
    state, _, _ = load_state(database, epoch, config)
    assert not state.bindings.rows, "nothing is kept in it, and nobody is there"


def test_nobody_leads_by_a_database_in_which_two_jobs_hold_one_device() -> None:
    database, config = Memory(), Config(database="postgresql://nowhere")  # type: ignore[arg-type]
    epoch = memory.take(database, "tester", 60)
    assert epoch is not None
    d = Driver()
    d.join()
    for _ in range(4):
        d.submit(devices=2)
    rows = [Change(table.name, key, None, row) for table in d.state.tables() for key, row in table.rows.items()]
    twice = [c._replace(new=replace(c.new, devices=(0, 1))) if c.table == "run" else c for c in rows]
    memory.commit(database, epoch, twice, [])
    with pytest.raises(Contradiction) as refused:
        load_state(database, epoch, config)
    told = str(refused.value)
    assert told.startswith("the database holds what cannot be, and nobody leads by it: ")
    assert "device 0 of node n1 is held by run 1.1 and by run 2.1; device 1 of node n1 is held" in told
    assert "; and more. Restore a backup, or set these rows right by hand" in told
