"""A cluster of real processes under load, and what proves that it kept its word.

Jobs leave evidence: each run appends one line to one file when it starts and when it completes, in a single write, so what
ran, how often and in which order is known from the jobs themselves and not from the scheduler. `Database` looks straight at
PostgreSQL, also while no scheduler runs, and can hold a commit still on either side of the moment at which it is durable.
"""

from tests.harness.database import Database
from tests.harness.evidence import Evidence
from tests.harness.limits import LIMIT, ROOT, TRAINER, WHOLE_NODE
from tests.harness.load import Load
from tests.harness.processes import alive, catches, job_processes, leftovers, run, run_module
from tests.harness.relay import Relay
from tests.harness.site import Site, quick_cluster

__all__ = [
    "LIMIT",
    "ROOT",
    "TRAINER",
    "WHOLE_NODE",
    "Database",
    "Evidence",
    "Load",
    "Relay",
    "Site",
    "alive",
    "catches",
    "job_processes",
    "leftovers",
    "quick_cluster",
    "run",
    "run_module",
]
