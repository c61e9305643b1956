"""fair: an order by usage. Those with the least usage for their shares are served first."""
