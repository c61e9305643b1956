"""The tables, as SQLAlchemy Core metadata."""
