"""Runs the state machine of cell exchange. The same examples every time, so that a change is judged by what it did.

To search for longer, with other examples each time:

    EBB_MACHINE_EXAMPLES=5000 pytest tests/policies/test_exchange_machine.py --timeout 0
"""

import os

from hypothesis import HealthCheck, settings

from tests.policies.exchange_machine import ExchangeMachine

LONGER = int(os.environ.get("EBB_MACHINE_EXAMPLES", "0"))

TestExchange = ExchangeMachine.TestCase
TestExchange.settings = settings(
    max_examples=LONGER or 40,
    stateful_step_count=30,
    derandomize=not LONGER,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
