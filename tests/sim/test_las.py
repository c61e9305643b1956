"""Least attained service in the simulator, beside Tiresias' own simulator."""

from pathlib import Path

import pytest

from benchmarks.sim_philly import counting_gpus
from scheduler_service.sim.experiments.cases import Case, Nodes, Outcome, Policy, simulate

SLICE = Path(__file__).parent / "data" / "philly_slice_1000.csv.gz"
TIRESIAS = {"completion": 5628.3, "wait": 2464.9, "makespan": 181240}
"""What Tiresias' simulator (github.com/SymbioticLab/Tiresias, scheme count, schedule dlas-gpu: queues up to 3,250 and 7,200
GPU-seconds) gives for these jobs on 128 GPUs, in seconds. It counts in whole seconds, and looks for jobs that change their
queue a little late; its 220 preemptions are 223 here."""
AS_TIRESIAS = (("threshold", 3250.0), ("second_threshold", 7200.0), ("patience", 0.0))


def on_128_gpus(policy: Policy) -> Outcome:
    """Preemption costs nothing there: a run saves its work within a microsecond."""
    return simulate(Case(cluster=(Nodes(gpus=128),), workload=counting_gpus(SLICE, grace_s=1e-6), policy=policy))


def seconds(outcome: Outcome) -> dict[str, float]:
    submits, ends, waits = (outcome.jobs[name].to_numpy() / 1e6 for name in ("submit_us", "end_us", "wait_us"))
    return {"completion": (ends - submits).mean(), "wait": waits.mean(), "makespan": ends.max()}


def test_it_gives_what_tiresias_gives() -> None:
    outcome = on_128_gpus(Policy(name="las", settings=AS_TIRESIAS))
    assert seconds(outcome) == pytest.approx(TIRESIAS, rel=5e-5)
    assert len(outcome.runs) - len(outcome.jobs) == pytest.approx(220, abs=5)


def test_jobs_that_need_little_wait_less_at_the_cost_of_those_that_need_most() -> None:
    las, fifo = (on_128_gpus(policy) for policy in (Policy(name="las"), Policy(name="fifo")))
    needs = fifo.jobs["work_us"].to_numpy() * fifo.jobs["gpus"].to_numpy()
    little, most = needs.argsort()[:500], needs.argsort()[-100:]
    waits = {name: outcome.jobs["wait_us"].to_numpy() for name, outcome in (("las", las), ("fifo", fifo))}
    assert waits["las"][little].mean() < 0.7 * waits["fifo"][little].mean()
    assert waits["las"][most].mean() > waits["fifo"][most].mean()
