"""Runs and gangs for tests of time slicing."""

from dataclasses import replace

from scheduler_service.core.model import JobSpec, Run, RunPhase, TaskGroup
from scheduler_service.core.model.values import Vector
from tests.core.driver import spec


def run_on(job: int, mask: int) -> Run:
    """On node 1."""
    devices = tuple(index for index in range(8) if mask >> index & 1)
    return Run(job, 1, 1, devices, Vector(1000, 1024, len(devices)), RunPhase.RUNNING, 0)


def gang_of(tasks: int, devices: int, **elastic: int) -> JobSpec:
    each = Vector(1000, 1024, devices)
    whole = Vector(*(part * tasks for part in each))
    return replace(spec(devices), demand=whole, gang=(TaskGroup(tasks, each),), **elastic)
