"""`ebb-scheduler restored`: makes a database that came back from a backup fit to be led again."""

from typing import Any

import click

from scheduler_service.commands.database import CommandError, connection, database_options, require_used


@click.command()
@database_options
def restored(**database: Any) -> None:
    """Make a database that was restored from a backup fit to be led again.

    What was accepted after the backup is lost, but agents and checkpoints still know it. So the next leader's epoch is put
    above all that agents have obeyed, and numbers of jobs, orders and exchanges are skipped that may have been given. Stop
    every scheduler first. To do it twice harms nothing.

    \b
    Examples:
      ebb-scheduler restored --config /etc/ebb/scheduler.yaml
      ebb-scheduler restored --embedded /var/lib/ebb/db
    """
    with connection(database, require_used("it is no backup of one"), new=False) as conn:
        from scheduler_service import store

        lease = store.holder(conn)
        if lease.valid:
            where = lease.address or lease.holder
            raise CommandError(f"the scheduler at {where} leads, or did a moment ago: stop every scheduler, and try again")
        store.skip(conn)
        above = lease.epoch + store.SKIPPED
    click.echo(f"the next leader's epoch is above {above}, and {store.SKIPPED:,} numbers of jobs are skipped")
