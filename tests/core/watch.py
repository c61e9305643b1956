"""What must hold over a history and cannot be seen in one state: the state machine tells it every step."""

from scheduler_service.core.messages import Launch, Step
from scheduler_service.core.model import (
    Dependency,
    DependencyKind,
    Job,
    JobClass,
    JobState,
    NodeState,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.claims import Claim
from tests.core.charged import check_charges
from tests.core.driver import Driver


class Watch:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.awaited: dict[int, tuple[Dependency, ...]] = {}
        """Job -> what it is to wait for, as it was asked last."""
        self.indices: dict[int, dict[int, int]] = {}
        """Array -> index -> the element that has it."""
        self.launches: dict[tuple[int, int], tuple[int, ...]] = {}
        """(job, run) -> the node of each of its tasks."""

    def see(self, taken: Step) -> None:
        check_charges(self.driver.state)
        for change in taken.changes:
            if change.table == "job" and change.old is None:
                self.awaited[change.key] = change.new.spec.dependencies
        for change in taken.changes:
            if change.table == "run":
                if change.old is None:
                    self._placed(change.new)
                if change.new.stop_reason is StopReason.PREEMPTED and not _was_preempted(change.old):
                    self._preempted(change.old or change.new, change.new)
                if change.new.stop_reason is StopReason.GANG and change.old is not None and change.old.stop_us is None:
                    self._released(change.new)
            elif change.table == "job":
                if change.old is None and change.new.array_job:
                    self._element(change.new)
                if change.new.spec.array is not None and change.new.ended_us is not None:
                    self._array_over(change.new)
        for order in taken.orders:
            if isinstance(order.desired, Launch):
                self.see_launch(order.desired)

    def _placed(self, run: Run) -> None:
        driver = self.driver
        job, node = driver.job(run.job_id), driver.state.nodes.rows[run.node]
        assert not job.held, f"job {job.id} is held and starts"
        assert not job.suspend_requested, f"job {job.id} is suspended and starts"
        assert not job.cancel_requested, f"job {job.id} is cancelled and starts"
        assert job.eligible_us is None, f"job {job.id} starts before its pause is over"
        assert node.state is NodeState.UP, f"run {run.key} starts on a silent node"
        assert node.drained_us is None, f"run {run.key} starts on a drained node"
        for dependency in self.awaited.get(job.array_job or job.id, ()):
            end = driver.ended.get(dependency.job_id)
            assert end is not None, f"job {job.id} starts before {dependency}"
            assert _holds(dependency.kind, end.state), f"job {job.id} starts, though {dependency} ended as {end.state}"

    def _preempted(self, old: Run, new: Run) -> None:
        """May this trial have this run preempted?"""
        driver, settings = self.driver, self.driver.state.settings
        job, trial = driver.job(new.job_id), driver.job(new.stop_for)
        assert job.spec.job_class is JobClass.BEST_EFFORT
        assert trial.spec.job_class is JobClass.TRIAL or driver.state.site_order.claim is Claim.REORDER
        assert job.priority <= trial.priority, f"job {job.id} leaves for a job of lower priority"
        ran = None if old.started_us is None else driver.state.cluster.clock_us - old.started_us
        assert ran is None or ran >= settings.min_run_us, f"job {job.id} had run for {ran} us only"

    def _released(self, run: Run) -> None:
        """With its gang, since another task failed, or one of them has not begun in time."""
        job = self.driver.job(run.job_id)
        tasks = [self.driver.runs[run.key._replace(task=task)] for task in range(len(job.launch_spec.tasks()))]
        if job.verdict is Reason.GANG_NOT_READY:
            assert any(task.started_us is None for task in tasks), f"gang {job.id} was not late"
        elif job.verdict is not Reason.NONE:
            assert any(task.phase is RunPhase.ENDED for task in tasks), f"no task of gang {job.id} has failed"

    def _element(self, element: Job) -> None:
        array = self.driver.job(element.array_job)
        assert array.spec.array is not None
        assert not array.held, "an element begins while its array is held"
        assert 0 <= element.array_index < array.spec.array.size
        others = self.indices.setdefault(array.id, {})
        assert element.array_index not in others, f"element {element.array_index} of {array.id} begins twice"
        others[element.array_index] = element.id

    def _array_over(self, array: Job) -> None:
        assert array.spec.array is not None
        ends = [self.driver.ended[element].state for element in self.indices.get(array.id, {}).values()]
        if array.state is JobState.CANCELLED:
            return
        assert len(ends) == array.spec.array.size, f"array {array.id} ended with elements still to come"
        assert (array.state is JobState.SUCCEEDED) == all(end is JobState.SUCCEEDED for end in ends)

    def see_launch(self, launch: Launch) -> None:
        """Nodes, local and global ranks are those of the whole launch."""
        run, gang = launch.run, launch.gang
        if gang is None:
            return
        at = run.key[:2]
        tasks = len(launch.job.launch_spec.tasks())
        placed = tuple(self.driver.runs[RunKey(*at, task)].node for task in range(tasks))
        assert self.launches.setdefault(at, placed) == placed
        here = [task for task, node in enumerate(placed) if node == run.node]
        assert gang.nodes == tuple(dict.fromkeys(placed))
        assert (gang.local_rank, gang.local_world_size) == (here.index(run.task), len(here))


def _was_preempted(run: Run | None) -> bool:
    return run is not None and run.stop_reason is StopReason.PREEMPTED


def _holds(kind: DependencyKind, end: JobState) -> bool:
    return {
        DependencyKind.AFTER_OK: end is JobState.SUCCEEDED,
        DependencyKind.AFTER_FAILED: end is not JobState.SUCCEEDED,
        DependencyKind.AFTER_ANY: True,
    }[kind]
