"""A gang that is stopped at random moments goes on from one step, in real processes."""

from pathlib import Path

from tests.sdk.gang_of_two import check_interruptions


def test_two_ranks_go_on_from_one_step_after_stops_at_random_moments(tmp_path: Path) -> None:
    assert check_interruptions(tmp_path, 6, 10, 0.08) >= 3
