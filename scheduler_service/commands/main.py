"""`ebb-scheduler`: the command line of the scheduler."""

import gc
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from scheduler_service.addresses import DEFAULT_LISTEN, without_password
from scheduler_service.commands.check import check
from scheduler_service.commands.firewall import firewall
from scheduler_service.commands.history import history
from scheduler_service.commands.record import record
from scheduler_service.commands.restored import restored
from scheduler_service.commands.token import token
from scheduler_service.config import lacking_folders, load_or_exit, origins
from scheduler_service.policies.registry import for_sites

SELDOM = 20_000
"""New objects between two looks for cycles. With Python's own 700 the same calls under way were looked at again and again,
for 7 % of the event loop's time under load; what lies in cycles, a few megabytes, can wait."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="ebb-cluster", prog_name="ebb-scheduler")
def main() -> None:
    """Ebb's scheduler: decides what runs where, and keeps it in PostgreSQL."""


@main.command()
@click.option("--database", metavar="URL", help="PostgreSQL >= 15, such as postgresql://user@host/ebb.")
@click.option("--embedded", metavar="DIR", type=click.Path(path_type=Path), help="Run a PostgreSQL of its own in DIR.")
@click.option("--listen", metavar="HOST:PORT", help=f"Port 0 takes a free one.  [default: {DEFAULT_LISTEN}]")
@click.option("--advertise", metavar="HOST:PORT", help="Where clients and agents reach it.  [default: as --listen]")
@click.option("--address-file", metavar="FILE", type=click.Path(path_type=Path), help="Write HOST:PORT here while leading.")
@click.option("--tls-certificate", metavar="FILE", type=click.Path(path_type=Path), help="The service's certificate (PEM).")
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="Its key (PEM).")
@click.option("--tls-client-ca", metavar="FILE", type=click.Path(path_type=Path), help="Callers show a certificate of this CA.")
@click.option("--auth", type=click.Choice(["none", "token"]), help="What callers show; none on loopback only.  [default: none]")
@click.option("--preset", type=click.Choice(["site", "paper"]), help="Defaults of what is below: see docs.  [default: site]")
@click.option("--policy", type=click.Choice(for_sites()), help="[default: fitgpp]")
@click.option("--fitgpp-s", type=float, metavar="S", help="Weight of the grace period against the size.  [default: 4]")
@click.option("--fitgpp-cap", type=int, metavar="P", help="How often a job may be preempted for trials.  [default: 1]")
@click.option("--backfill/--no-backfill", default=None, help="Let jobs start that do not delay the first.  [default: yes]")
@click.option("--aging", type=float, metavar="SECONDS", help="Waiting that is worth a step of priority; 0: none.  [default: 0]")
@click.option("--min-run", type=float, metavar="SECONDS", help="A run is not preempted before it ran so long.  [default: 60]")
@click.option("--default-grace", type=float, metavar="SECONDS", help="For jobs that name none.  [default: 30]")
@click.option("--heartbeat", type=float, metavar="SECONDS", help="Between signs of life of an agent.  [default: 2]")
@click.option("--silent-after", type=float, metavar="SECONDS", help="A node unheard of for so long is silent.  [default: 10]")
@click.option("--lease", type=float, metavar="SECONDS", help="How long a dead scheduler keeps the lease.  [default: 4]")
@click.option("--accept-clock", is_flag=True, default=None, help="Lead although the last leader's clock was ahead; see docs.")
@click.option("--record", metavar="FILE", type=click.Path(path_type=Path), help="Record what the engine gets, for a replay.")
@click.option("--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), help="[default: INFO]")
@click.option("--config", "file", metavar="FILE", type=click.Path(path_type=Path), help="YAML with any of the settings.")
@click.option("--check-config", is_flag=True, help="Check the settings, print them, and exit.")
def serve(file: Path | None, check_config: bool, **flags: Any) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Every setting can also stand in the file (default_grace: 30) or in the environment (EBB_SCHEDULER_DEFAULT_GRACE=30);
    flags win over the environment, that over the file, and all of them over the preset. Some have no flag: --check-config
    prints all, with what holds and where it comes from, and docs/operating.md says what they mean. To listen on other
    addresses than loopback, give it a certificate with its key, and --auth token; `ebb-scheduler token` makes the tokens.

    \b
    Examples:
      ebb-scheduler serve --embedded /var/lib/ebb/db
      ebb-scheduler serve --database postgresql://ebb@localhost/ebb --policy fifo
      ebb-scheduler serve --config /etc/ebb/scheduler.yaml --check-config
    """
    config = load_or_exit(file, flags)
    lacking = lacking_folders(config)
    for line in lacking:
        click.echo(f"ebb-scheduler: {line}", err=True)
    if lacking and not check_config:  # else they may be made until it serves, as by systemd
        sys.exit(2)
    if check_config:
        if config.tls is not None and (reminder := config.tls.reminder(time.time())):
            click.echo(f"ebb-scheduler: {reminder}", err=True)
        whence = origins(file, {name: value for name, value in flags.items() if value is not None})
        for name, value in config.model_dump(mode="json").items():
            shown = f"{name}: {'' if value is None else without_password(str(value))}"
            click.echo(shown if whence[name] == "default" else f"{shown:<34} # {whence[name]}")
        return
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its other messages are for gRPC developers
    logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    import uvloop  # the command line must answer --help without loading all of it

    from scheduler_service.app import serve as run

    gc.set_threshold(SELDOM)
    gc.freeze()  # loaded modules stay: the collector need not scan them

    try:
        uvloop.run(run(config))
    except Exception as error:
        logging.getLogger("ebb.scheduler").debug("failed", exc_info=error)
        from scheduler_service.store import one_line

        click.echo(f"ebb-scheduler: {one_line(error)}", err=True)
        sys.exit(1)


for _command in (check, firewall, history, record, restored, token):
    main.add_command(_command)
