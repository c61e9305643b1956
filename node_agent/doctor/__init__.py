"""`ebb-agent doctor`: finds what would keep an agent on this machine from working, and how to fix each problem."""
