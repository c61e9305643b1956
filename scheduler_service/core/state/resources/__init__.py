"""What nodes have, what is free of it, and what would fit where."""
