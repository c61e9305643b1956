"""Converts the agent's knowledge of the saves of runs to ebb.v1."""

from ebb.v1 import job_pb2

from node_agent.run_state.save_values import SaveResult


def save_out(save: SaveResult | None) -> job_pb2.SaveResult | None:
    if save is None:
        return None
    step = save.step if save.step >= 0 else None
    return job_pb2.SaveResult(outcome=job_pb2.SaveOutcome.Name(int(save.outcome)), step=step, detail=save.detail)
