"""Runs the state machine. The same examples every time, so that a change is judged by what it did.

To search for longer, with other examples each time:

    EBB_MACHINE_EXAMPLES=5000 pytest tests/core/test_machine.py --timeout 0
"""

import os

from hypothesis import HealthCheck, settings

from tests.core.machine import EngineMachine

LONGER = int(os.environ.get("EBB_MACHINE_EXAMPLES", "0"))

TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    max_examples=LONGER or 100,
    stateful_step_count=50,
    derandomize=not LONGER,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
