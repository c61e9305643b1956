"""fair: an order by usage. Whoever has used least of its share is served first."""
