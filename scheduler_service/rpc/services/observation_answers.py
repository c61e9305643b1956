"""Answers of what agents observed last, of a node or a run."""

from collections.abc import Sequence

from ebb.v1 import cluster_pb2, job_pb2

from scheduler_service.core.model import Run
from scheduler_service.rpc.backend import Leading
from scheduler_service.rpc.convert.agents import run_key_in


def observations_of(leading: Leading, node: int) -> cluster_pb2.NodeObservations | None:
    """Return the last observations of a node's agent; None if no agent is connected or it observes nothing."""
    link = leading.dispatch.connected_link(leading.view.nodes[node].name)
    if link is None or link.observed is None:
        return None
    seen: cluster_pb2.NodeObservations = link.observed
    runs = leading.view.runs_on.get(node, {})
    cycles = [cycle for cycle in seen.cycles if run_key_in(cycle) in runs]
    steps = [each for each in seen.steps if run_key_in(each) in runs]
    mini_batches = [each for each in seen.mini_batches if run_key_in(each) in runs]
    if not (seen.devices or cycles or steps or mini_batches) and (seen.cycles or seen.steps or seen.mini_batches):
        return None  # all runs in it have ended
    return cluster_pb2.NodeObservations(
        time=seen.time, devices=seen.devices, cycles=cycles, steps=steps, mini_batches=mini_batches
    )


def steps_of(leading: Leading, run: Run) -> job_pb2.RunSteps | None:
    """Return the last measurement of a run's steps; None if its program counts none, the run has ended, or its agent is not
    connected."""
    seen = _last_observations(leading, run)
    return None if seen is None else next((each for each in seen.steps if run_key_in(each) == run.key), None)


def mini_batch_of(leading: Leading, run: Run) -> job_pb2.MiniBatch | None:
    """Return a run's last mini-batch time; None if no source knows it, the run has ended, or its agent is not connected."""
    seen = _last_observations(leading, run)
    return None if seen is None else next((each for each in seen.mini_batches if run_key_in(each) == run.key), None)


def turn_of(leading: Leading, runs: Sequence[Run]) -> job_pb2.TurnState:
    """Whether the job of these runs has its devices now, as the node of the first task said last."""
    run = runs[0] if runs else None
    if run is None or not run.group or run.key not in leading.view.runs_on.get(run.node, {}):
        return job_pb2.TURN_STATE_UNSPECIFIED
    link = leading.dispatch.connected_link(leading.view.nodes[run.node].name)
    executes = None if link is None else link.turns.get(run.key)
    if executes is None:
        return job_pb2.TURN_STATE_UNSPECIFIED
    return job_pb2.TURN_STATE_EXECUTES if executes else job_pb2.TURN_STATE_WAITS


def checkpoints_of(leading: Leading | None, run: Run) -> tuple[str, str]:
    """The checkpoint that a run began from, and the last one that it saved; empty: none, or nobody knows it now. Of a run that
    has ended, its row has them."""
    if leading is None or run.key not in leading.view.runs_on.get(run.node, {}):
        return run.began_from, run.checkpoint
    link = leading.dispatch.connected_link(leading.view.nodes[run.node].name)
    return ("", "") if link is None else link.checkpoints.get(run.key, ("", ""))


def _last_observations(leading: Leading, run: Run) -> cluster_pb2.NodeObservations | None:
    """Return the last observations of the agent of a run's node; None if the run has ended or the agent is not connected."""
    if run.key not in leading.view.runs_on.get(run.node, {}):
        return None
    link = leading.dispatch.connected_link(leading.view.nodes[run.node].name)
    return None if link is None else link.observed
