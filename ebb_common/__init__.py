"""What the three programs share. It imports none of them, and no module here is loaded before it is needed."""
