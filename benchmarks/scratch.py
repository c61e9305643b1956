"""The temporary folder of a benchmark."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards. Others may look into it: as root, the embedded PostgreSQL runs as another user."""
    with tempfile.TemporaryDirectory(prefix="ebb-bench-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
