"""Converts the agent's observations to ebb.agent.v1."""

from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import cluster_pb2, job_pb2

from node_agent.devices.base import FAULT_LENGTH, Observation
from node_agent.measuring.mini_batch import MiniBatch
from node_agent.measuring.observations import Observations, RunCycle, SliceObservation
from node_agent.measuring.step_measurements import RunMeasurement
from node_agent.measuring.step_rates import RunSteps
from node_agent.processes.job_reports import RunGrace
from node_agent.run_state.save_values import RunCheckpoints
from node_agent.transport.convert_durations import duration_out


def encode_observations(seen: Observations) -> pb.Observations:
    return pb.Observations(
        devices=map(_observation, seen.devices),
        cycles=map(_cycle, seen.cycles),
        steps=map(_steps, seen.steps),
        mini_batches=map(_mini_batch, seen.mini_batches),
        measurements=map(_measurement, seen.measurements),
        graces=map(_grace, seen.graces),
        checkpoints=map(_checkpoints, seen.checkpoints),
        slices=map(_slice, seen.slices),
    )


def _observation(seen: Observation) -> cluster_pb2.DeviceObservation:
    return cluster_pb2.DeviceObservation(
        index=seen.index,
        memory_used_mib=seen.memory_used_mib,
        utilisation_percent=seen.utilisation_percent,
        fault=seen.fault[:FAULT_LENGTH],
    )


def _cycle(cycle: RunCycle) -> cluster_pb2.MemoryCycle:
    job_id, run, task = cycle.key
    return cluster_pb2.MemoryCycle(
        job_id=job_id,
        run=run,
        task=task,
        device=cycle.index,
        period=None if cycle.period_seconds is None else duration_out(cycle.period_seconds),
        minimum_mib=cycle.minimum_mib,
        maximum_mib=cycle.maximum_mib,
        confidence=cycle.confidence,
        source=cluster_pb2.MEMORY_SOURCE_NVML,
    )


def _mini_batch(found: MiniBatch) -> job_pb2.MiniBatch:
    job_id, run, task = found.key
    return job_pb2.MiniBatch(
        job_id=job_id,
        run=run,
        task=task,
        time=duration_out(found.seconds),
        confidence=found.confidence,
        source=job_pb2.MiniBatchSource.Name(int(found.source)),
    )


def _steps(steps: RunSteps) -> job_pb2.RunSteps:
    job_id, run, task = steps.key
    return job_pb2.RunSteps(
        job_id=job_id,
        run=run,
        task=task,
        step=steps.step,
        total=steps.total,
        state=job_pb2.StepState.Name(int(steps.state)),
        since_step=duration_out(steps.since_step),
        step_rate=steps.rate,
        step_rate_error=steps.rate_error,
        step_rate_since_start=steps.rate_since_start,
        mini_batch_time=None if steps.mini_batch is None else duration_out(steps.mini_batch),
        mini_batch_spread=None if steps.spread is None else duration_out(steps.spread),
        measured=steps.measured,
        remaining=None if steps.remaining is None else duration_out(steps.remaining),
    )


def _measurement(seen: RunMeasurement) -> pb.RunMeasurement:
    job_id, run, task = seen.key
    return pb.RunMeasurement(
        job_id=job_id,
        run=run,
        task=task,
        steps=seen.steps,
        total=seen.total,
        first_step=duration_out(seen.first),
        last_step=duration_out(seen.last),
        spread=seen.spread,
        memory_mib=seen.memory_mib,
    )


def _checkpoints(named: RunCheckpoints) -> pb.RunCheckpoints:
    job_id, run, task = named.key
    said = named.said
    return pb.RunCheckpoints(
        job_id=job_id,
        run=run,
        task=task,
        began_from=said.began_from,
        saved=said.saved,
        step=said.step if said.step >= 0 else None,
        failed=said.failed,
        failures=said.failures,
        means=pb.SaveMeans.Name(int(named.means)),
        longest_step=duration_out(named.longest_step) if named.longest_step else None,
        evaluated=named.evaluated,
    )


def _grace(asked: RunGrace) -> pb.RunGrace:
    job_id, run, task = asked.key
    return pb.RunGrace(job_id=job_id, run=run, task=task, grace_period=duration_out(asked.seconds))


def _slice(seen: SliceObservation) -> pb.SliceObservation:
    job_id, run, task = seen.key
    return pb.SliceObservation(
        job_id=job_id,
        run=run,
        task=task,
        executing=seen.executing,
        executed=duration_out(seen.executed),
        since=duration_out(seen.since),
        switches=seen.switches,
        switching=duration_out(seen.switching),
        rung=seen.rung,
        residue_bytes=seen.residue_bytes,
        wait=duration_out(seen.wait),
        park=duration_out(seen.park),
        resume=duration_out(seen.resume),
        outlasted=duration_out(seen.outlasted),
        tried=seen.tried,
    )
