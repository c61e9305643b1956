"""The fence, and what the constraints refuse."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from scheduler_service import store
from scheduler_service.core.model import EarmarkPhase, JobState, RunKey, RunPhase
from scheduler_service.core.model.tenants.virtual_clusters import Pin, Quota
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from tests.store import make
from tests.store.contract import Db

BASE = (make.CLUSTER, make.NODE, make.DEVICE, make.job(1), make.run(1))


@pytest.fixture
def base(db: Db, epoch: int) -> int:
    """A small cluster with one run; the commit's number."""
    return db.commit(epoch, make.new(*BASE), [])


def test_commits_are_numbered_one_by_one(db: Db, epoch: int) -> None:
    first = db.commit(epoch, [], [])
    assert db.commit(epoch, make.new(make.job(1)), [make.submitted(1)]) == first + 1
    assert db.load().commit_no == first + 1


def test_after_a_takeover_the_old_epoch_is_fenced(db: Db, epoch: int) -> None:
    new = db.take("other", ttl=60, force=True)
    assert new == epoch + 1
    with pytest.raises(store.Fenced, match=f"epoch {epoch} is over.* Step down"):
        db.commit(epoch, make.new(make.job(1)), [make.submitted(1)])
    loaded = db.load()
    assert loaded.jobs == ()
    assert loaded.commit_no == 0
    assert db.commit(new, [], []) == 1


def test_the_fence_comes_before_any_other_refusal(db: Db, epoch: int) -> None:
    db.take("other", ttl=60, force=True)
    with pytest.raises(store.Fenced):
        db.commit(epoch, make.new(make.run(9)), [])


def test_a_repeated_request_is_a_duplicate(db: Db, epoch: int) -> None:
    db.commit(epoch, make.new(make.job(1, request_id="r")), [])
    with pytest.raises(store.DuplicateRequest, match=r"\(ada, r\)"):
        db.commit(epoch, make.new(make.job(2, request_id="r")), [])
    db.commit(epoch, make.new(make.job(2, request_id="r", user="bob"), make.job(3), make.job(4)), [])
    assert [job.id for job in db.load().jobs] == [1, 2, 3, 4]


REFUSALS: list[tuple[str, Sequence[Change]]] = [
    ("run_one_live", make.new(make.run(1, 2))),
    ("run_pkey", make.new(make.run(1, 1, phase=RunPhase.ENDED, ended_us=make.T))),
    ("run_of_job", make.new(make.run(9))),
    ("run_node_exists", make.new(make.job(2), make.run(2, node=9))),
    ("run_demand_not_negative", make.new(make.job(2), make.run(2, demand=Vector(1, -1, 1)))),
    ("run_counts_from_one", make.new(make.job(2), make.run(2, 0))),
    ("run_ended_has_time", [make.changed(BASE[4], phase=RunPhase.ENDED)]),
    ("run_ended_has_time", [make.changed(BASE[4], ended_us=make.T)]),
    ("run_phase_known", [make.changed(BASE[4], phase=99)]),
    ("job_pkey", make.new(make.job(1))),
    ("job_state_known", [make.changed(BASE[3], state=99)]),
    ("job_ended_has_time", [make.changed(BASE[3], state=JobState.FAILED)]),
    ("job_ended_has_time", [make.changed(BASE[3], ended_us=make.T)]),
    ("job_counters_not_negative", [make.changed(BASE[3], preempted_for_trial=-1)]),
    ("job_demand_not_negative", make.new(make.job(2, spec=replace(make.SPEC, demand=Vector(-1, 0, 0))))),
    ("job_grace_not_negative", make.new(make.job(2, spec=replace(make.SPEC, grace_us=-1)))),
    ("job_command_given", make.new(make.job(2, spec=replace(make.SPEC, command=())))),
    ("device_pkey", make.new(replace(make.DEVICE, uuid="GPU-9"))),
    ("device_uuid_once", make.new(replace(make.DEVICE, index=9))),
    ("device_node_exists", make.new(replace(make.DEVICE, node=9))),
    ("device_amounts_not_negative", [make.changed(make.DEVICE, memory_mib=-1)]),
    ("node_name_once", make.new(replace(make.NODE, id=2))),
    ("node_capacity_not_negative", [make.changed(make.NODE, capacity=Vector(0, 0, -1))]),
    ("node_state_known", [make.changed(make.NODE, state=4)]),
    ("device_node_exists", [make.deleted(make.NODE)]),
    ("earmark_of_job", make.new(make.earmark(1, 9))),
    ("earmark_node_exists", make.new(make.earmark(1, 1, node=9))),
    ("earmark_kept_not_negative", make.new(make.earmark(1, 1, kept=Vector(-1, 0, 0)))),
    ("earmark_keeps_no_more_than_wanted", make.new(make.earmark(1, 1, kept=Vector(3, 0, 0)))),
    ("earmark_phase_known", make.new(make.earmark(1, 1, phase=7))),
    ("earmark_devices_is_array", make.new(make.earmark(1, 1, devices={}))),
    ("memo_of_job", make.new(make.memo("job/9", job_id=9))),
    ("memo_policy_given", make.new(make.memo("a", policy=""))),
    ("memo_value_is_array", make.new(make.memo("a", value={}))),
    ("memo_due_once", make.new(make.memo("a", due_us=5, due=True))),
    ("share_group_numbers_positive", make.new(make.share_group(0))),
    ("share_group_numbers_positive", make.new(make.share_group(1, period_us=0))),
    ("share_group_devices_given", make.new(make.share_group(1, devices=()))),
    ("share_group_rows_given", make.new(make.share_group(1, rows=()))),
    ("share_group_turns_given", make.new(make.share_group(1, rows=((((1, 1, 0),), 0),)))),
    ("share_group_weights_not_negative", make.new(make.share_group(1, rows=((((1, 1, 0),), 1), (((2, 1, 0),), -1))))),
    ("share_group_pkey", make.new(make.share_group(1), make.share_group(1, period_us=5))),
    ("run_sharing_not_negative", make.new(make.job(2), make.run(2, parked_mib=-1))),
    ("run_part_of_a_device", make.new(make.job(2), make.run(2, part_ppm=-1))),
    ("run_part_of_a_device", make.new(make.job(2), make.run(2, part_ppm=1_000_001))),
    ("cluster_share_groups_count_up", [make.changed(make.CLUSTER, next_share_group=0)]),
    ("operation_pkey", make.new(make.job(2), make.operation(1, 1), make.operation(1, 2))),
    ("operation_once", make.new(make.operation(1, 1), make.operation(2, 1))),
    ("operation_of_job", make.new(make.operation(1, 9))),
    ("operation_id_positive", make.new(make.operation(0, 1))),
    ("operation_kind_known", make.new(make.operation(1, 1, kind=99))),
    ("operation_phase_known", make.new(make.operation(1, 1, phase=99))),
    ("operation_source_is_array", make.new(make.operation(1, 1, source={}))),
    ("operation_target_is_array", make.new(make.operation(1, 1, target={}))),
    ("operation_undo_is_array", make.new(make.operation(1, 1, undo={}))),
    ("run_parking_is_array", make.new(make.job(2), make.run(2, parking={}))),
    ("cluster_operations_count_up", [make.changed(make.CLUSTER, next_operation=0)]),
    ("memo_pkey", make.new(make.memo("a"), make.memo("a", value=()))),
    ("history_runs_is_array", make.new(make.history("a", runs={}))),
    ("history_pkey", make.new(make.history("a"), make.history("a", used_us=5))),
    ("virtual_cluster_name_once", make.new(make.VC, replace(make.VC, id=2))),
    ("virtual_cluster_name_given", make.new(replace(make.VC, name=""))),
    ("virtual_cluster_weight_positive", make.new(replace(make.VC, weight=0))),
    ("virtual_cluster_quotas_positive", make.new(replace(make.VC, quotas=(Quota("p", "node", 2), Quota("p", "device", 0))))),
    ("virtual_cluster_pins_not_negative", make.new(replace(make.VC, pins=(Pin("x", "p", "node", -1),)))),
    ("cell_binding_pkey", make.new(make.VC, make.BINDING, replace(make.BINDING, pin=""))),
    ("cell_binding_vc_exists", make.new(make.BINDING)),
    ("cell_binding_index_not_negative", make.new(make.VC, replace(make.BINDING, index=-1))),
    ("cluster_pkey", make.new(replace(make.CLUSTER, id="second"))),
    ("cluster_numbers_count_up", [make.changed(make.CLUSTER, next_job=0)]),
    ("job_present", [make.changed(make.job(7), state=JobState.RUNNING)]),
    ("earmark_present", [make.deleted(make.earmark(7, 1))]),
    ("", make.new(make.job(2, user="a\0b"))),
    ("", make.new(make.job(2, user="\ud800"))),
    ("", make.new(make.job(2, detail="x", preempted_for_trial=2**40))),
]


@pytest.mark.parametrize(("constraint", "changes"), REFUSALS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_rule_refuses_the_whole_commit(
    db: Db, epoch: int, base: int, constraint: str, changes: Sequence[Change]
) -> None:
    before = db.load()
    with pytest.raises(store.Rejected) as refused:
        db.commit(epoch, [*make.new(make.job(50)), *changes], [make.submitted(1)])
    if constraint != "device_node_exists" or refused.value.constraint != "run_node_exists":  # both rules forbid that
        assert refused.value.constraint == constraint
    assert db.load() == before
    assert db.story(1) == []
    assert db.commit(epoch, make.new(make.job(50)), []) == base + 1, "the connection goes on working"


def test_an_event_needs_its_job(db: Db, epoch: int, base: int) -> None:
    with pytest.raises(store.Rejected, match="job_event_of_job"):
        db.commit(epoch, [], [make.submitted(9)])


def test_the_spec_of_a_job_is_not_written_again(db: Db, epoch: int, base: int) -> None:
    old = make.job(1, spec=replace(make.SPEC, name="other"))
    db.commit(epoch, [make.changed(old, state=JobState.RUNNING)], [])
    found = db.find_job(1)
    assert found is not None
    assert (found[0].spec, found[0].state) == (make.SPEC, JobState.RUNNING)


def test_a_large_batch_is_one_commit(db: Db, epoch: int, base: int) -> None:
    jobs = [make.job(i) for i in range(2, 2002)]
    db.commit(epoch, make.new(*jobs), [make.submitted(job.id) for job in jobs])
    assert db.load().jobs == (BASE[3], *jobs)
    changes = [make.changed(job, state=JobState.CANCELLED, ended_us=make.T) for job in jobs]
    db.commit(epoch, changes, [])
    assert db.load().jobs == (BASE[3],)


def test_a_commit_from_a_thread_of_its_own(db: Db, epoch: int) -> None:
    numbers: list[int] = []
    worker = threading.Thread(target=lambda: numbers.append(db.commit(epoch, [], [])))
    worker.start()
    worker.join(20)
    assert numbers == [1]


def test_an_earmark_goes_through_its_phases(db: Db, epoch: int, base: int) -> None:
    earmark = make.earmark(1, 1, victims=(RunKey(1, 1),))
    db.commit(epoch, make.new(earmark), [])
    change = make.changed(earmark, phase=EarmarkPhase.READY, kept=Vector(2, 2, 2), victims=(), deadline_us=make.T)
    db.commit(epoch, [change], [])
    assert db.load().earmarks == (change.new,)
