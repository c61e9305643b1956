"""How thorough the tests are. `make test` takes some minutes, and the same examples each time; `make test-long` takes other
examples, and many times as many:

    EBB_EXAMPLES=50 make tests ARGS="tests/core/test_machine.py"

`make check` takes a part of them (EBB_EXAMPLES=0.1).
"""

import os

TIMES = float(os.environ.get("EBB_EXAMPLES") or 0)
LONG = TIMES >= 1
FEW = 0 < TIMES < 1
"""Random examples need not reach what they are about."""


def examples(count: int) -> int:
    """So many in `make test`."""
    return max(round(count * TIMES), 1) if TIMES else count
