"""Alembic's environment. It is entered by `scheduler_service.store.migrate` alone, which passes the connection."""

from alembic import context

from scheduler_service.store.schema.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
