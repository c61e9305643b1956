"""Which checkpoint a process goes on from, alone or with the other ranks of its gang, and at which step all of them stop."""
