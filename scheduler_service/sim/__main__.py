"""`python -m scheduler_service.sim` is `ebb-sim`."""

from scheduler_service.sim.cli import main

if __name__ == "__main__":
    main(prog_name="ebb-sim")
