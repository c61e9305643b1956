"""PyTorch 2.5 and later call this at the end of `import torch`, by the entry point `torch.backends` of this folder."""

import os


def install() -> None:
    """Install the hook in a process of a job. Never raises, because `import torch` would fail."""
    if os.environ.get("NO_EBB_HOOK") or not (os.environ.get("EBB_STEPS_FILE") or os.environ.get("EBB_PARK_DIR")):
        return
    try:
        import sys

        from . import optimizers

        optimizers.install(sys.modules["torch"])
    except Exception as error:
        import logging

        log = logging.getLogger("ebb_hook")
        log.warning("the hook is off: %s: %s. The training goes on", type(error).__name__, error)
