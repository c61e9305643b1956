"""The only writer of the state: one transaction for each step."""
