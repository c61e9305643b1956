"""Policies that are there to be compared with: HiveD's baseline, and other scores than FitGpp's (docs/scores.md)."""

from scheduler_service.policies.registry import Entry, register
from scheduler_service.policies.victims.preempting import preempting
from scheduler_service.sim.policies import by_count
from scheduler_service.sim.policies.scores import CHOICES

register("quota", Entry("HiveD's baseline: a quota of devices, wherever they are", by_count.stages))
for _name, _choice in CHOICES.items():
    register(_name, Entry("FitGpp with another score (docs/scores.md)", preempting(_choice)))
