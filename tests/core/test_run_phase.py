"""The table of run phases: every phase has its predicates, and what may come next leads to the end."""

from scheduler_service.core.model.run_phase import NEXT, RunPhase

PREDICATES = ("to_launch", "counts_for_gang", "preemptible", "exits_soon", "holds_devices", "holds_host")


def test_every_phase_has_every_predicate_and_its_transitions() -> None:
    assert set(NEXT) == set(RunPhase)
    for phase in RunPhase:
        assert all(isinstance(getattr(phase, name), bool) for name in PREDICATES), phase


def test_a_run_that_is_over_holds_nothing_and_stays_so() -> None:
    over = [phase for phase in RunPhase if phase.over]
    assert over == [RunPhase.ENDED]
    assert not any(getattr(RunPhase.ENDED, name) for name in PREDICATES)
    assert not NEXT[RunPhase.ENDED]


def test_from_every_phase_a_run_can_be_stopped_or_end_and_never_goes_back() -> None:
    for phase, after in NEXT.items():
        assert phase not in after
        assert phase.over or RunPhase.ENDED in after
        assert not phase.preemptible or RunPhase.STOPPING in after
        assert not (phase.exits_soon and any(other.preemptible for other in after))
