"""`python -m examples.demo`: a trial displaces training jobs, which resume as if nothing had happened. About a minute.

Exit status: 0 if every check succeeded, 1 if not (the folder with all logs is then kept) or if the reader of the output
has gone, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP (a closed terminal).
The sequence of events is in play.py, the jobs in scenario.py, the checks in verify.py and scores.py. `--show allox` runs the
same jobs on two kinds of device under three policies instead (allox/play.py). `--show gandiva` shows how jobs share devices
and move between them (gandiva/play.py).
"""

import argparse
import os
import sys
from contextlib import suppress
from functools import partial

from examples.demo.stopping import Stopped, Stopping, nobody_reads

SHOWS = {
    "preemption": "a trial displaces training jobs (the default)",
    "allox": "NumPy jobs on two kinds of device: AlloX, shortest first, and first come, first served",
    "gandiva": "jobs take turns on devices, are packed if that is measured to pay, move, grow and shrink",
}


def main() -> int:
    """Runs the demo in a folder of its own."""
    stopping = Stopping()
    options = arguments()
    from examples.demo.play import Play, perform, play  # takes half a second, and Ctrl-C may come meanwhile

    show: Play = play
    if options.show == "allox":
        from examples.demo.allox.play import play as play_allox

        show = partial(play_allox, seed=options.seed or 0)
    if options.show == "gandiva":
        from examples.demo.gandiva.play import play as play_gandiva

        show = play_gandiva
    try:
        held = perform(show, stopping)
        stopping.over()
        return 0 if held else 1
    except Stopped as stopped:
        return 128 + stopped.number
    except OSError as error:
        if not nobody_reads(error):
            raise
        return 1
    finally:
        with suppress(Stopped):
            stopping.over()
        flush_output()


def flush_output() -> None:
    """Write what is left of the output, if anybody reads it: else Python would try, and exit with a status of its own."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if not nobody_reads(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=(__doc__ or "").partition("\n")[0].partition(": ")[2])
    described = "; ".join(f"{name}: {about}" for name, about in SHOWS.items())
    parser.add_argument("--show", choices=SHOWS, default="preemption", help=described)
    parser.add_argument("--seed", type=int, metavar="N", help="of allox: another draw of the jobs (default: 0)")
    options = parser.parse_args()
    if options.seed is not None and options.show != "allox":
        parser.error(f"--seed is for the show allox; {options.show} draws nothing at random")
    return options


if __name__ == "__main__":
    sys.exit(main())
