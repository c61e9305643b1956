"""Policies that exist only for comparison: HiveD's baseline, AlloX's, and other scores than FitGpp's (docs/scores.md).

They are registered here, and imported when one is made, because the command line of the simulator must start fast.
"""

from typing import TYPE_CHECKING

from scheduler_service.policies.registry import Entry, Factory, register

if TYPE_CHECKING:
    from scheduler_service.policies.options import Options
    from scheduler_service.policies.stages import Stages

SCORES = ("young", "old", "waste", "snug", "movable", "pairs", "patient")
"""The names in `scores.CHOICES`."""


ALLOX = {
    "es-fcfs": "equal share, first come first served, on the favourite device if that is free (AlloX, figure 1)",
    "es": "equal share, the shortest first (AlloX, 5.1.1)",
    "drff": "DRF, first come first served, on the device that the user names first (AlloX, 5.1.1)",
    "drfs": "DRF, the shortest first, on the fastest device (AlloX, 5.1.1)",
    "drfa": "DRF over slots that count by their average speed-up, the shortest first (AlloX, 5.1.1)",
    "sjf-plus": "the shortest job and configuration first (AlloX, 2.2)",
    "jsq-plus": "the queue in which a job completes first (AlloX, 2.2)",
    "best-fit": "first come first served, on the fastest device (AlloX, 2.2)",
}
"""AlloX's baselines: the rules of `allox_baselines`."""


def _with_score(name: str) -> Factory:
    def stages(options: "Options") -> "Stages":
        from scheduler_service.policies.fitgpp.preemption_stages import preempting
        from scheduler_service.sim.policies.victim_scores import CHOICES

        return preempting(CHOICES[name])(options)

    return stages


def _by_rule(name: str) -> Factory:
    def stages(options: "Options") -> "Stages":
        from scheduler_service.sim.policies.allox_baselines import make_stages

        return make_stages(name, options)

    return stages


register("quota", Entry("HiveD's baseline: a quota of devices, wherever they are", f"{__name__}.by_count:stages"))
register(
    "round-robin", Entry("a job that does not fit takes turns with others (Gandiva, 4.2.1)", f"{__name__}.round_robin:stages")
)
for _name in SCORES:
    register(_name, Entry("FitGpp with another score (docs/scores.md)", _with_score(_name)))
for _name, _about in ALLOX.items():
    register(_name, Entry(_about, _by_rule(_name)))
