"""Policies that are there to be compared with: HiveD's baseline, and other scores than FitGpp's (docs/scores.md).

They are registered here, and imported when one is made: the command line of the simulator has to start fast.
"""

from typing import TYPE_CHECKING

from scheduler_service.policies.registry import Entry, Factory, register

if TYPE_CHECKING:
    from scheduler_service.policies.options import Options
    from scheduler_service.policies.stages import Stages

SCORES = ("young", "old", "waste", "snug", "movable", "pairs", "patient")
"""Those of `scores.CHOICES`."""


def _with_score(name: str) -> Factory:
    def stages(options: "Options") -> "Stages":
        from scheduler_service.policies.victims.preempting import preempting
        from scheduler_service.sim.policies.scores import CHOICES

        return preempting(CHOICES[name])(options)

    return stages


register("quota", Entry("HiveD's baseline: a quota of devices, wherever they are", f"{__name__}.by_count:stages"))
for _name in SCORES:
    register(_name, Entry("FitGpp with another score (docs/scores.md)", _with_score(_name)))
