"""The data of a training loop: the place in it, how it is shared out among tasks, and the random generators."""
