"""The folder that an agent puts on the PYTHONPATH of jobs. `ebb_hook` in it runs inside the training process.

A job's own Python imports `ebb_hook` from here as a top-level package, and has nothing else of Ebb. So `ebb_hook` uses
relative imports, and needs only the standard library of Python 3.9. The SDK imports the same files as `ebb_inject.ebb_hook`. A
process that does both has two copies of the modules, which may be of different versions: `parking.parking_of_process` and
`optimizers.Hook` find the other copy in `sys.modules`.
"""

from pathlib import Path

FOLDER = str(Path(__file__).parent)
"""The folder to put on a PYTHONPATH."""
