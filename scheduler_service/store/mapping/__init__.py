"""Core rows as records of the tables, and back."""
