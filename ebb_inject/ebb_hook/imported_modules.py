"""Lists the modules that a process has imported, so that the job's next process imports them before its script begins."""

from __future__ import annotations

import os
import sys

_MOST = 4096


def tell() -> None:
    """Write the names of imported modules that are installed, in the order of their imports, for the agent. Modules of the
    job's own code are left out: importing them may have any effect. Raises nothing."""
    folder = os.environ.get("EBB_RUN_DIR")
    if not folder or os.environ.get("EBB_TASK", "0") != "0":
        return
    try:
        names = [name for name, module in list(sys.modules.items()) if _is_installed(name, module)]
        new = f"{folder}/modules.{os.getpid()}"
        with open(new, "w", encoding="ascii") as file:
            file.write("\n".join(names[:_MOST]))
        os.replace(new, f"{folder}/modules")
    except (OSError, UnicodeEncodeError):
        pass


def _is_installed(name: str, module: object) -> bool:
    if name.partition(".")[0] in ("__main__", "__mp_main__", "ebb_hook", "sitecustomize", "usercustomize"):
        return False
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and ("/site-packages/" in path or "/dist-packages/" in path)
