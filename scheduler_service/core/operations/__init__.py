"""Changes of jobs that take several phases and survive a change of leader."""
