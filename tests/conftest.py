"""What every test process needs before anything else."""

import os
import signal

# A shell that runs us in the background has us ignore Ctrl-C, and every process that we start would: those that are
# tested with it must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing here forks without exec. gRPC's fork handlers, on by default, can hang the process that forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
