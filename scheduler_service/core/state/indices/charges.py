"""The index of what usage-based policies charge to each subject."""

from scheduler_service.core.model import Job, Run, RunKey
from scheduler_service.core.model.values import ZERO, Vector, add, sub
from scheduler_service.core.state.indices.nonempty import set_or_drop
from scheduler_service.core.state.tables import Tables


def charge(state: Tables, job: Job, run: Run, holds: bool) -> None:
    """Charges the subject of the job for what the run holds, or reduces the charge when the run releases it."""
    order = state.order_for(job)
    if order.charged_to is None or run.is_parked:
        return
    at, demand = (order.policy, order.charged_to(job)), run.demand
    part = Vector(devices=run.used_devices_ppm) if demand.devices else Vector(demand.cpu_milli)
    before = state.charged.get(at, ZERO)
    after = add(before, part) if holds else sub(before, part)
    set_or_drop(state.charged, at, after if any(after) else None)
    state.pending.accounts.add(at)
    state.pending.policies = True


def charge_all(state: Tables, job: Job, holds: bool) -> None:
    """Charges all runs of a job whose order has changed, including runs that are made ready elsewhere."""
    number = state.operation_of.get(job.id)
    target = None if number is None else state.operations.rows[number].target
    waiting = () if target is None else (RunKey(job.id, target.run, task) for task in range(len(job.launch_spec.tasks())))
    ready = [run for key in waiting if (run := state.runs.rows.get(key)) is not None and run.awaits]
    for run in [*state.runs_of(job.id), *ready]:
        charge(state, job, run, holds)
