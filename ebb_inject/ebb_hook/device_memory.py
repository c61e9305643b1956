"""Limits PyTorch to the part of a device that the agent has given to the run, when others use the same device."""

from __future__ import annotations

import logging
import os
from typing import Any

LIMIT = "EBB_DEVICE_MEMORY_LIMIT_MIB"
_log = logging.getLogger("ebb_hook")


def set_limit(torch: Any) -> None:
    """Set the limit when the program begins to use CUDA. Earlier, that would create a context. An allocation beyond the
    limit fails in the program itself, as on a smaller device."""
    text = os.environ.get(LIMIT, "")
    if not (text.isascii() and text.isdigit() and int(text)):
        return
    limit = int(text) << 20

    def apply() -> None:
        try:
            for device in range(torch.cuda.device_count()):
                total = torch.cuda.get_device_properties(device).total_memory
                if limit < total:
                    torch.cuda.set_per_process_memory_fraction(limit / total, device)
        except Exception as error:
            _log.warning("the limit of device memory is not set: %s: %s", type(error).__name__, error)

    torch.cuda._lazy_call(apply)
