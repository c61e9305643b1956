"""How thorough the tests are. `make test` takes some minutes, and the same examples each time; `make test-long` takes other
examples, and many times as many:

    EBB_EXAMPLES=50 make tests ARGS="tests/core/test_machine.py"
"""

import os

TIMES = int(os.environ.get("EBB_EXAMPLES", "0"))
LONG = bool(TIMES)


def examples(count: int) -> int:
    """So many in `make test`."""
    return count * max(TIMES, 1)
