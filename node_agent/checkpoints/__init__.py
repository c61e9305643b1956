"""How runs are saved when they are stopped, and how their checkpoints get from node to node and into the store."""
