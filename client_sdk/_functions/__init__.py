"""Python functions as jobs: what runs them, and the futures of their results."""
