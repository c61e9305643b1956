"""Runs the state machine of tenants."""

import pytest
from hypothesis import HealthCheck, settings

from tests.policies.cells_machine import CellsMachine
from tests.thorough import LONG, examples

pytestmark = pytest.mark.timeout(0 if LONG else 400)  # some 15 s of a core that is not always its own
TestCells = CellsMachine.TestCase
TestCells.settings = settings(
    max_examples=examples(15),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
