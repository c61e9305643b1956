"""Code shared by the three programs. It imports none of them, and its modules are loaded only when needed."""
