"""The store in memory, for services that need no PostgreSQL: those of tests, and of `client_sdk.testing`.

Every function has the name, the arguments and the errors of the function of `store` that asks PostgreSQL, with a Memory for
the connection; `tests/store/contract.py` holds both to one contract. Rows travel as the same records (`rows`), go through
JSON, and are judged by the constraints of the same `tables`: a new column or rule applies here without a change. What may
happen to a connection (Unavailable, CommitUnknown) does not happen here. There are no tokens.
"""

from scheduler_service.store.memory.commit import commit as commit
from scheduler_service.store.memory.commit import outcome as outcome
from scheduler_service.store.memory.database import Memory as Memory
from scheduler_service.store.memory.exchange import find_accepted as find_accepted
from scheduler_service.store.memory.exchange import find_exchanges as find_exchanges
from scheduler_service.store.memory.exchange import find_posted as find_posted
from scheduler_service.store.memory.exchange import find_posting as find_posting
from scheduler_service.store.memory.exchange import list_exchanges as list_exchanges
from scheduler_service.store.memory.exchange import list_ledger as list_ledger
from scheduler_service.store.memory.exchange import list_postings as list_postings
from scheduler_service.store.memory.exchange import list_surpluses as list_surpluses
from scheduler_service.store.memory.exchange import list_vcs as list_vcs
from scheduler_service.store.memory.exchange import live_of_offers as live_of_offers
from scheduler_service.store.memory.lease import holder as holder
from scheduler_service.store.memory.lease import release as release
from scheduler_service.store.memory.lease import renew as renew
from scheduler_service.store.memory.lease import take as take
from scheduler_service.store.memory.reads import count_jobs as count_jobs
from scheduler_service.store.memory.reads import find_ended_before as find_ended_before
from scheduler_service.store.memory.reads import find_ends as find_ends
from scheduler_service.store.memory.reads import find_job as find_job
from scheduler_service.store.memory.reads import find_requests as find_requests
from scheduler_service.store.memory.reads import find_run as find_run
from scheduler_service.store.memory.reads import list_jobs as list_jobs
from scheduler_service.store.memory.reads import list_nodes as list_nodes
from scheduler_service.store.memory.reads import list_runs as list_runs
from scheduler_service.store.memory.reads import load as load
from scheduler_service.store.memory.reads import story as story
from scheduler_service.store.memory.user_files import expire_files as expire_files
from scheduler_service.store.memory.user_files import put_piece as put_piece
from scheduler_service.store.memory.user_files import read_piece as read_piece
from scheduler_service.store.memory.user_files import use_file as use_file
