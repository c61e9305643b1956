"""`ebb-scheduler check`: whether a scheduler answers, for health checks and people."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from scheduler_service.config import Config, load_or_exit

if TYPE_CHECKING:
    import grpc


@click.command()
@click.option("--address", metavar="HOST:PORT", help="Which one.  [default: the one with these settings]")
@click.option(
    "--tls-ca",
    metavar="FILE",
    envvar="EBB_TLS_CA",
    type=click.Path(path_type=Path),
    help="Use TLS; the CA to vouch for it.",
)
@click.option("--leads", is_flag=True, help="It must lead, not just stand by.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=4, show_default=True, metavar="SECONDS")
@click.option("--config", "file", metavar="FILE", type=click.Path(path_type=Path), help="As for serve.")
def check(address: str | None, tls_ca: Path | None, leads: bool, timeout: float, file: Path | None) -> None:
    """Ask a scheduler whether it leads. The status is 0 when it answers, and 1 when it does not.

    No token is needed. Where the settings ask callers for a certificate, the scheduler's own is shown.

    \b
    Examples:
      ebb-scheduler check --config /etc/ebb/scheduler.yaml --tls-ca /etc/ebb/ca.pem
      ebb-scheduler check --address sched-1.example.org:7737 --tls-ca /etc/ebb/ca.pem --leads
    """
    config = load_or_exit(file, {}) if address is None or file is not None else None
    if address is None:
        assert config is not None
        address = config.advertise or config.listen
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what fails is said once, below
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    try:
        with _channel(address, tls_ca, config) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout)
    except OSError as error:
        _end(f"{error.filename} cannot be read: {error.strerror}")
    except grpc.RpcError as error:
        hint = "" if tls_ca is not None else " (where it has TLS, give --tls-ca)"
        _end(f"{address} does not answer: {error.details()}{hint}")
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    click.echo(f"{address} {'leads' if serving else 'stands by'}")
    sys.exit(1 if leads and not serving else 0)


def _channel(address: str, tls_ca: Path | None, config: Config | None) -> "grpc.Channel":
    """Raises OSError where a file cannot be read."""
    import grpc

    if tls_ca is None:
        return grpc.insecure_channel(address)
    own = config.tls if config is not None else None
    pair = (own.key.read_bytes(), own.certificate.read_bytes()) if own and own.client_ca else (None, None)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(tls_ca.read_bytes(), *pair))


def _end(why: str) -> NoReturn:
    click.echo(f"ebb-scheduler: {why}", err=True)
    sys.exit(1)
