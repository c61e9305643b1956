"""Runs the state machine of tenants. The same examples every time, so that a change is judged by what it did.

To search for longer, with other examples each time:

    EBB_MACHINE_EXAMPLES=5000 pytest tests/policies/test_cells_machine.py
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.policies.cells_machine import CellsMachine

LONGER = int(os.environ.get("EBB_MACHINE_EXAMPLES", "0"))

pytestmark = pytest.mark.timeout(0 if LONGER else 400)  # some 45 s of a core that is not always its own
TestCells = CellsMachine.TestCase
TestCells.settings = settings(
    max_examples=LONGER or 60,
    stateful_step_count=40,
    derandomize=not LONGER,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
