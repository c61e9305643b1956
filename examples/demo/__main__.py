"""`python -m examples.demo`: a trial displaces training jobs, and they go on as if nothing had been. About a minute.

Exit status: 0 if every check held, 1 if not (then the folder with all logs is kept), 1 also if nobody
reads the output any more, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP (a closed terminal).
The plot is in play.py, the cast in scenario.py, the checks in verify.py and scores.py.
"""

import argparse
import os
import sys
from contextlib import suppress

from examples.demo.stopping import Stopped, Stopping, nobody_reads


def main() -> int:
    """Runs the demo in a folder of its own."""
    stopping = Stopping()
    argparse.ArgumentParser(prog="make demo", description=(__doc__ or "").partition("\n")[0].partition(": ")[2]).parse_args()
    from examples.demo.play import perform  # takes half a second, and Ctrl-C may come meanwhile

    try:
        held = perform(stopping)
        stopping.over()
        return 0 if held else 1
    except Stopped as stopped:
        return 128 + stopped.number
    except OSError as error:
        if not nobody_reads(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        with suppress(Stopped):
            stopping.over()


if __name__ == "__main__":
    sys.exit(main())
