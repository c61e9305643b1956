"""OR-Tools takes time and memory to load, and is there for matching policies alone."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["scheduler_service.__main__", "scheduler_service.app", "scheduler_service.sim.cli"])
def test_no_program_loads_or_tools_before_a_policy_needs_it(module: str) -> None:
    said = f"import sys, {module}; sys.exit('ortools' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False, timeout=60).returncode == 0


def test_the_matching_loads_nothing_else_of_or_tools() -> None:
    """pandas and Abseil, which OR-Tools requires, are for other parts of it."""
    module = "scheduler_service.policies.allox.matching.solve"
    said = f"import sys, {module}; sys.exit(bool(sys.modules.keys() & {{'pandas', 'absl', 'google.protobuf'}}))"
    assert subprocess.run([sys.executable, "-c", said], check=False, timeout=60).returncode == 0
