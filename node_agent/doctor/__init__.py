"""`ebb-agent doctor`: what on this machine would keep an agent from its work, and what to do about each."""
