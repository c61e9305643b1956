"""The store in memory, held to the same contract tests as PostgreSQL."""
