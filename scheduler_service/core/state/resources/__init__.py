"""Resources of nodes: their capacity, what is free, and what would fit where."""
