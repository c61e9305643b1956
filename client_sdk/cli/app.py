"""The top of `ebb`: its options, and what becomes of errors."""

import errno
import logging
import os
import sys
from typing import Any

import click

from client_sdk.cli import (
    cells,
    exchange,
    explain,
    job_verbs,
    listing,
    logs_and_wait,
    nodes,
    runs,
    share,
    show,
    story,
    submit,
    top,
    virtual_clusters,
)
from client_sdk.cli.output import common as output
from client_sdk.cli.session import Number, Session
from client_sdk.errors import EbbError


class _Notices(logging.Handler):
    """Prints the SDK's retry messages in the form of the CLI's error messages."""

    def emit(self, record: logging.LogRecord) -> None:
        output.say(f"ebb: {record.getMessage()}", err=True)


_NOTICES = _Notices()


class _Group(click.Group):
    """Ends every command with one clear sentence and an exit status; a traceback only with EBB_DEBUG=1."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """With what is printed before there is a command, such as the help."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if not _is_full(error):
                raise
            _forget_stdout()
            click.echo(f"ebb: the output cannot be written: {error.strerror}", err=True)
            sys.exit(1)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Ctrl-C while the options are read ends as everywhere: click would say "Aborted!" and leave with 1."""
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(130)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                _forget_stdout()
                ctx.exit(141)  # what a shell reports for SIGPIPE
            if os.environ.get("EBB_DEBUG") == "1":
                raise
            if isinstance(error, OSError) and _is_full(error):
                raise  # to `main`
            if isinstance(error, EbbError):
                output.say(f"ebb: {error}", err=True)
            else:
                text = f"{type(error).__name__}: {error}"
                click.echo(f"ebb: unexpected {text}; EBB_DEBUG=1 shows where, for a report", err=True)
            ctx.exit(1)
        return result


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--address",
    metavar="HOST:PORT[,...]",
    help="Where the scheduler is, or each of several.  [default: $EBB_ADDRESS, else 127.0.0.1:7737]",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Number(min=0, min_open=True, max=1e9),
    default=10.0,
    show_default=True,
    help="How long to try to reach the scheduler.",
)
@click.version_option(package_name="ebb-cluster", prog_name="ebb", message="%(prog)s %(version)s")
@click.pass_context
def ebb(ctx: click.Context, address: str | None, timeout: float) -> None:
    """Ebb shares a GPU cluster: trials start at once, and long runs lose no work.

    \b
    Examples:
      ebb submit --devices 1 --name resnet -- python train.py --steps 10000
      ebb submit --trial --devices 1 -- python try_it.py
      ebb list
      ebb explain 7
      ebb story 7
      ebb logs -f 7
    """
    if os.environ.get("EBB_DEBUG") == "1":
        logging.basicConfig()  # each try is told
    else:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what gRPC says becomes one line of ours
        logging.getLogger("client_sdk").addHandler(_NOTICES)
    ctx.obj = Session(address, timeout)
    ctx.call_on_close(ctx.obj.close)


@ebb.command()
def version() -> None:
    """Print the version of this client.

    \b
    Example:
      ebb version
    """
    from importlib.metadata import version as installed

    click.echo(f"ebb {installed('ebb-cluster')}")


def _is_full(error: OSError) -> bool:
    """Whether the output takes no more; other files have names."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename is None


def _forget_stdout() -> None:
    """The reader has gone or the disk is full, so Python must not flush the rest at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


_COMMANDS: tuple[click.Command, ...] = (
    submit.submit,
    listing.list_,
    show.show,
    *logs_and_wait.COMMANDS,
    *job_verbs.COMMANDS,
    runs.runs,
    explain.explain,
    share.share,
    story.story,
    nodes.node,
    virtual_clusters.vc,
    cells.cells,
    exchange.exchange,
    top.top,
)
for command in _COMMANDS:
    ebb.add_command(command)
