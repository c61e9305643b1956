"""A gang that is stopped at random moments goes on from one step, in real processes."""

from pathlib import Path

import pytest

from tests.sdk.gang_of_two import check_interruptions
from tests.torch_needed import require_torch


def test_two_ranks_go_on_from_one_step_after_stops_at_random_moments(tmp_path: Path) -> None:
    assert check_interruptions(tmp_path, 6, 10, 0.08) >= 3


@pytest.mark.long
def test_two_ranks_of_torch_go_on_from_one_step_after_stops_at_30_random_moments(tmp_path: Path) -> None:
    require_torch()
    assert check_interruptions(tmp_path, 7, 30, 0.03, "--torch") >= 10
