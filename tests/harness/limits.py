"""How long and how large, for tests of real processes."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TRAINER = ROOT / "tests" / "e2e" / "trainer.py"
LIMIT = 60.0
"""Seconds for anything that must happen; generous, since other tests use the same cores."""
WHOLE_NODE = 8
"""Devices of a node of the profile dgx-a100."""
