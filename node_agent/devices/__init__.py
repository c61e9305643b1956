"""What a node has."""
