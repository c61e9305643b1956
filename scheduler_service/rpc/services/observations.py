"""Observations that agents send of their devices and runs: kept in memory while their links last, and told to the engine."""

import asyncio
import logging
import time
from functools import partial

from ebb.agent.v1 import agent_link_pb2
from ebb.v1 import cluster_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from scheduler_service.core.handlers.grace import is_more
from scheduler_service.core.messages import FaultsSeen, MiniBatchMeasured, Reply, RequeueRequested, StepTooLong
from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.operations.measuring import FEWEST
from scheduler_service.core.operations.samples import is_news
from scheduler_service.rpc.backend import Leading
from scheduler_service.rpc.convert.agents import (
    checkpoints_in,
    grace_in,
    known_steps,
    measured_in,
    mini_batch_in,
    run_key_in,
    save_failed_in,
    switching_in,
)
from scheduler_service.rpc.convert.values import duration_in
from scheduler_service.rpc.interceptors import InvalidArgument, check, invalid
from scheduler_service.run.dispatch import Link
from scheduler_service.run.partially_parked_gangs import TORN_US

log = logging.getLogger(__name__)

LONGEST_PERIOD = 24 * 3600 * 1_000_000
"""Microseconds. Memory is never observed for longer."""


LEAST_SWITCHING = 10_000
"""Microseconds: smaller differences of what a switch takes make no difference to turns of seconds."""


class Observer:
    """Takes what the agent of one link sees."""

    def __init__(self, leading: Leading, link: Link, node: int) -> None:
        self._leading = leading
        self._link = link
        self._node = node
        self._told_us: dict[RunKey, Micros] = {}
        """Monotonic time at which the engine was last told each run's mini-batch time."""
        self._switching: dict[RunKey, tuple[Micros, Switching]] = {}
        """Run that takes turns -> when the engine was last told its switching times (same clock), and these times."""
        self._telling: asyncio.Future[Reply] | None = None
        self._measured: dict[RunKey, int] = {}
        """Run that is a sample -> the number of steps that the engine was last told."""
        self._graces: set[RunKey] = set()
        """Runs whose requested grace period is on its way to the engine."""
        self._before: agent_link_pb2.Observations | None = None
        """The last observations: equal ones need not be checked and stored again."""
        self._failures: dict[RunKey, int] = {}
        """Run whose saves have failed -> the number of failures that the engine was last told."""
        self._long_steps: dict[RunKey, Micros] = {}
        """Run whose steps are longer than its grace period -> the step time that the engine was last told."""

    def take_observations(self, seen: agent_link_pb2.Observations) -> None:
        """Raises InvalidArgument for what cannot be seen on this node."""
        if seen == self._before and self._link.observed is not None:
            self._link.observed.time.GetCurrentTime()
        else:
            self._keep(seen)
        self._before = seen
        self._look_for_torn_gangs()
        self._tell_measured(seen)
        self._tell_graces(seen)
        self._tell_saves(seen)
        if self._leading.service.introspecting:
            self._tell_mini_batches(seen)
            self._tell_switching(seen)
        if seen.devices:
            self._tell_faults({device.index: device.fault for device in seen.devices})

    def _keep(self, seen: agent_link_pb2.Observations) -> None:
        """Check the observations, and store them for readers. Raises InvalidArgument."""
        check(seen)
        devices = self._leading.view.devices.get(self._node, {})
        if seen.devices and sorted(device.index for device in seen.devices) != sorted(devices):
            raise InvalidArgument("DEVICES", f"node {self._link.node}: what is observed must be its {len(devices)} devices")
        for cycle in seen.cycles:
            if cycle.device not in devices:
                raise InvalidArgument("DEVICES", f"node {self._link.node} has no device {cycle.device}")
            if cycle.maximum_mib < cycle.minimum_mib:
                below = f"{cycle.maximum_mib} is below minimum_mib, {cycle.minimum_mib}"
                raise invalid("cycles.maximum_mib", "at_least_minimum_mib", below)
            if cycle.HasField("period") and not 0 < duration_in(cycle.period) <= LONGEST_PERIOD:
                raise invalid("cycles.period", "duration.gt_lte", "must be above 0 and at most a day")
        at = Timestamp()
        at.GetCurrentTime()
        steps = map(known_steps, seen.steps)
        shown = seen.devices or seen.cycles or seen.steps or seen.mini_batches
        if shown or not (seen.checkpoints or seen.graces or seen.slices):  # an agent that sees nothing says so
            self._link.observed = cluster_pb2.NodeObservations(
                time=at, devices=seen.devices, cycles=seen.cycles, steps=steps, mini_batches=seen.mini_batches
            )
        else:  # it does not look at devices, and tells how its runs save
            self._link.observed = None
        self._link.checkpoints = {run_key_in(one): checkpoints_in(one) for one in seen.checkpoints}
        self._link.means = {run_key_in(one): one.means for one in seen.checkpoints}
        self._link.executed = {run_key_in(one): duration_in(one.executed) for one in seen.slices}
        self._link.turns = {run_key_in(one): one.executing for one in seen.slices}

    def nothing(self) -> None:
        """The agent observes nothing any more."""
        self._link.observed = None
        self._link.executed = {}
        self._link.turns = {}
        self._link.checkpoints = {}
        self._link.means = {}

    def _tell_faults(self, seen: dict[int, str]) -> None:
        """Tell the engine which devices are faulty, if that has changed. A failure is retried at the next observation."""
        devices = self._leading.view.devices.get(self._node, {}).values()
        if all(seen[device.index] == device.fault for device in devices) or self._telling is not None:
            return
        faults = tuple((index, why) for index, why in sorted(seen.items()) if why)
        self._telling = self._leading.service.handle(FaultsSeen(self._link.node, self._link.boot_id, faults))
        self._telling.add_done_callback(self._note_faults_told)

    def _tell_measured(self, seen: agent_link_pb2.Observations) -> None:
        """Tell the engine the measurements of runs that are samples. What cannot be committed is sent with a later
        observation."""
        runs, jobs = self._leading.view.runs_on.get(self._node, {}), self._leading.view.jobs
        before, self._measured = self._measured, {}
        for one in seen.measurements:
            key = run_key_in(one)
            job = jobs.get(key.job_id)
            if job is None or job.sampling is None or job.run != key.run or key not in runs or key.task:
                continue
            told = self._measured[key] = before.get(key, 0)
            if is_news(job.sampling, told, one.steps, one.total):
                self._measured[key] = one.steps
                self._leading.service.handle(measured_in(one, self._link.node)).add_done_callback(_log_unmeasured)

    def _tell_mini_batches(self, seen: agent_link_pb2.Observations) -> None:
        """Tell the engine each run's mini-batch time, on which the policy of its virtual cluster acts, at most once in
        `measured_us`. A measurement that decides nothing waits as long again for a better one. What cannot be committed is
        sent with a later observation."""
        each = self._leading.service.introspecting
        runs, jobs = self._leading.view.runs_on.get(self._node, {}), self._leading.view.jobs
        now, before = time.monotonic_ns() // 1000, self._told_us
        self._told_us = {key: at for key, at in before.items() if key in runs}
        for one in seen.mini_batches:
            key = run_key_in(one)
            job, run = jobs.get(key.job_id), runs.get(key)
            if job is None or run is None or key.task or (pause_us := each.get(job.spec.vc)) is None:
                continue
            due_us = before.get(key, now - pause_us) + pause_us
            if now < due_us:
                continue
            event = mini_batch_in(one, seen, run, self._link.node)
            if now < due_us + pause_us and key in before and not decides(run, event, seen):
                continue
            self._told_us[key] = now
            self._leading.service.handle(event).add_done_callback(_log_unmeasured)

    def _tell_switching(self, seen: agent_link_pb2.Observations) -> None:
        """Tell the engine the switching times of runs that take turns, if they have changed: at most once in `measured_us` for
        each run. A run without a share group is reported once it has one, as the engine would drop that. What cannot be
        committed is sent with a later observation."""
        each = self._leading.service.introspecting
        runs, jobs = self._leading.view.runs_on.get(self._node, {}), self._leading.view.jobs
        now, before, self._switching = time.monotonic_ns() // 1000, self._switching, {}
        for one in seen.slices:
            key = run_key_in(one)
            job, run = jobs.get(key.job_id), runs.get(key)
            if job is None or run is None or not run.group or (pause_us := each.get(job.spec.vc)) is None:
                continue
            event, told = switching_in(one, self._link.node), before.get(key)
            if told is None:
                is_news = is_known(one, event.switching)
            else:
                is_news = now >= told[0] + pause_us and is_other(told[1], event.switching)
            if is_news:
                self._switching[key] = now, event.switching
                self._leading.service.handle(event).add_done_callback(partial(self._told_switching, key))
            elif told is not None:
                self._switching[key] = told

    def _told_switching(self, key: RunKey, outcome: "asyncio.Future[Reply]") -> None:
        if not outcome.cancelled() and (error := outcome.exception()) is not None:
            self._switching.pop(key, None)
            log.warning("what the switches of run %s take could not be kept: %s; trying again", key, error)

    def _look_for_torn_gangs(self) -> None:
        """Restart a gang from its checkpoint if one of its tasks does not execute while another does: it would stay stuck."""
        view, torn = self._leading.view, self._leading.torn
        for job_id, run in {(key.job_id, key.run) for key in self._link.executed}:
            tasks = view.runs.get(job_id, ())
            if len(tasks) < 2 or tasks[0].run != run:
                continue
            links = {task.node: self._leading.dispatch.connected_link(view.nodes[task.node].name) for task in tasks}
            executed = {
                task.task: link.executed[task.key]
                for task in tasks
                if (link := links[task.node]) is not None and task.key in link.executed
            }
            if len(executed) < len(tasks):
                continue
            if not torn.knows((job_id, run)):
                torn.keep(lambda launch: (found := view.jobs.get(launch[0])) is not None and found.run == launch[1])
            if (waits := torn.find_late_task((job_id, run), executed)) is not None:
                at = view.nodes[next(task.node for task in tasks if task.task == waits)].name
                why = f"task {waits} on {at} did not execute for {TORN_US // SECOND} s while other tasks of its gang did"
                log.warning("job %d: %s; it starts again", job_id, why)
                self._leading.service.handle(RequeueRequested(job_id, run, why)).add_done_callback(_log_unrequeued)

    def _tell_graces(self, seen: agent_link_pb2.Observations) -> None:
        """Tells the engine which runs ask for a longer grace period than any run of their job before."""
        runs, jobs = self._leading.view.runs_on.get(self._node, {}), self._leading.view.jobs
        for one in seen.graces:
            key = run_key_in(one)
            job = jobs.get(key.job_id)
            if job is None or job.run != key.run or key not in runs or key in self._graces:
                continue
            if is_more(job, duration_in(one.grace_period)):
                self._graces.add(key)
                self._leading.service.handle(grace_in(one, self._link.node)).add_done_callback(
                    partial(self._note_grace_asked, key)
                )

    def _tell_saves(self, seen: agent_link_pb2.Observations) -> None:
        """Tells the engine which saves have failed, and which steps are longer than the grace period: of each run again when
        there are twice as many failures, or the step is a quarter longer."""
        runs, jobs = self._leading.view.runs_on.get(self._node, {}), self._leading.view.jobs
        failures, long_steps = self._failures, self._long_steps
        self._failures, self._long_steps = {}, {}
        for one in seen.checkpoints:
            key = run_key_in(one)
            job = jobs.get(key.job_id)
            if job is None or key not in runs:
                continue
            told, longest = failures.get(key, 0), duration_in(one.longest_step)
            if one.failed and one.failures >= max(2 * told, 1):
                told = one.failures
                self._leading.service.handle(save_failed_in(one, self._link.node)).add_done_callback(_log_unmeasured)
            if told:
                self._failures[key] = told
            before = long_steps.get(key, 0)
            if longest > job.spec.grace_us and 4 * longest >= 5 * before:
                before = longest
                event = StepTooLong(self._link.node, key, longest, one.evaluated)
                self._leading.service.handle(event).add_done_callback(_log_unmeasured)
            if before:
                self._long_steps[key] = before

    def _note_grace_asked(self, key: RunKey, outcome: "asyncio.Future[Reply]") -> None:
        self._graces.discard(key)
        if not outcome.cancelled() and (error := outcome.exception()) is not None:
            log.warning("the grace period that run %s asks for could not be kept: %s; trying again", key, error)

    def _note_faults_told(self, outcome: "asyncio.Future[Reply]") -> None:
        self._telling = None
        if not outcome.cancelled() and (error := outcome.exception()) is not None:
            log.warning("which devices of node %s are faulty could not be kept: %s; trying again", self._link.node, error)


def is_known(seen: agent_link_pb2.SliceObservation, switching: Switching) -> bool:
    """Whether the agent has parked a run, or has tried to: what it says of switches is no measurement before. That they take
    nothing is one, such as of a program that cannot be parked."""
    return seen.tried or seen.switches > 0 or any(switching)


def is_other(told: Switching, now: Switching) -> bool:
    """Whether a part of what switches take has changed by more than a tenth, or is no longer zero."""
    if not any(told):
        return any(now)
    return any(abs(new - old) > max(old // 10, LEAST_SWITCHING) for old, new in zip(told, now, strict=True))


def decides(run: Run, event: MiniBatchMeasured, seen: agent_link_pb2.Observations) -> bool:
    """Whether there are enough mini-batches, and what the devices do counts for the run: if it takes turns, it executes."""
    turns = [part.executing for part in seen.slices if run_key_in(part) == run.key]
    return event.count >= FEWEST and all(turns)


def _log_unmeasured(outcome: "asyncio.Future[Reply]") -> None:
    if not outcome.cancelled() and (error := outcome.exception()) is not None:
        log.warning("what was measured of a run could not be kept: %s; the next measurement takes its place", error)


def _log_unrequeued(outcome: "asyncio.Future[Reply]") -> None:
    if not outcome.cancelled() and (error := outcome.exception()) is not None:
        log.warning(
            "a gang that does not execute together could not be put back into its queue: %s; it is looked at again", error
        )
