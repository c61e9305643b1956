"""`ebb exchange offer, request, board`: the bulletin board."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from client_sdk._requests.exchange import begin_of
from client_sdk.cli.output import common as output
from client_sdk.cli.session import Number, Session, no_header_option, output_option, quiet_option
from client_sdk.errors import InvalidArgument
from client_sdk.models import CellLot, Posting, PostingKind, PostingState
from client_sdk.units import after, parse_duration, parse_time

F = TypeVar("F", bound=Callable[..., Any])

_GPU_HOUR_US = 3_600_000_000
COLUMNS = ("ID", "KIND", "VC", "CELLS", "FROM", "TO", "LEFT", "GPU-HOURS", "IN RETURN")


_WINDOW = (
    click.option("--from", "begin", metavar="TIME", help="Such as 2025-01-31T08:00 (UTC) or +2h.  [default: now]"),
    click.option("--for", "lasts", metavar="TIME", help="How long, such as 8h or 2d."),
    click.option("--to", "end", metavar="TIME", help="Until when, instead of --for."),
    click.option("--expires", metavar="TIME", help="When it leaves the board.  [default: with its window]"),
    click.option("--request-id", metavar="ID", help="The same id, with the same times (--to), posts once only."),
    output_option("json", "yaml"),
    quiet_option,
    click.argument("vc"),
    click.argument("cells", metavar="POOL/LEVEL=N"),
)


def _window(command: F) -> F:
    """Add the options of a posting for its window and for the output format."""
    for option in reversed(_WINDOW):
        command = option(command)
    return command


def _in_return(name: str, what: str) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        options = (
            click.option(f"--{name}", "swap", metavar="POOL/LEVEL=N", help=f"Cells {what} in return, and no surplus."),
            click.option(f"--{name}-from", "swap_begin", metavar="TIME", help="When these begin.  [default: as the others]"),
            click.option(f"--{name}-for", "swap_lasts", metavar="TIME", help="For how long.  [default: as the others]"),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@_in_return("wants", "that it wants")
@click.option("--ask", type=Number(min=0), metavar="GPUH", help="GPU-hours that it wants at least.  [default: all]")
@_window
@click.pass_obj
def offer(session: Session, /, vc: str, cells: str, ask: float | None, fmt: str | None, quiet: bool, **said: Any) -> None:
    """Offer cells of a virtual cluster to the others, for surplus or for other cells.

    They stay its own until somebody takes them. `ebb cells` shows pools and levels.

    \b
    Examples:
      ebb exchange offer vision a100/node=2 --for 8h
      ebb exchange offer vision a100/node=2 --from 2025-01-31T20:00 --for 12h --ask 100
      ebb exchange offer vision a100/node=1 --from +1h --for 4h --wants v100/node=2 --wants-from +5h
    """
    lot, swap, expires = _lots(cells, said)
    window = {"begin": lot.begin, "end": lot.end, "expires": expires, "request_id": said["request_id"]}
    made = session.client.exchange.offer(vc, lot.pool, lot.level, lot.cells, ask=ask, wants=swap, **window)
    _answer_posting(made, fmt, quiet)


@click.command()
@_in_return("gives", "that it gives")
@click.option("--bid", type=Number(min=0), metavar="GPUH", help="GPU-hours that it pays at most.  [default: all]")
@_window
@click.pass_obj
def request(session: Session, /, vc: str, cells: str, bid: float | None, fmt: str | None, quiet: bool, **said: Any) -> None:
    """Request cells for a virtual cluster. It gets them together, from one offer, or not at all.

    \b
    Examples:
      ebb exchange request speech a100/node=1 --for 8h
      ebb exchange request speech a100/node=1 --from 2025-01-31T20:00 --to 2025-02-01T08:00 --bid 60
    """
    lot, swap, expires = _lots(cells, said)
    window = {"begin": lot.begin, "end": lot.end, "expires": expires, "request_id": said["request_id"]}
    made = session.client.exchange.request(vc, lot.pool, lot.level, lot.cells, bid=bid, gives=swap, **window)
    _answer_posting(made, fmt, quiet)


def _lots(cells: str, said: dict[str, Any]) -> tuple[CellLot, CellLot | None, datetime | None]:
    """Return the lot offered or requested, the lot in return, and when the posting leaves the board."""
    now = datetime.now(UTC)
    begin, end = times(said["begin"], said["lasts"], said["end"], now)
    if end is None:
        raise click.UsageError("say for how long, such as --for 8h, or until when: --to TIME")
    lot = _lot(cells, begin, end)
    swap = None
    if said["swap"] is not None:
        other_begin, other_end = times(said["swap_begin"], said["swap_lasts"], None, now)
        other_begin = other_begin or begin
        if other_end is None:
            other_end = after(other_begin or now, end - (begin or now))
        swap = _lot(said["swap"], other_begin, other_end)
    return lot, swap, None if said["expires"] is None else parse_time(said["expires"], now)


def times(begin: str | None, lasts: str | None, end: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    if lasts is not None and end is not None:
        raise click.UsageError("--for and --to both say when it ends; leave one out")
    begins = None if begin is None else begin_of(begin, now)
    if lasts is not None:
        return begins, after(begins or now, parse_duration(lasts))
    return begins, None if end is None else parse_time(end, now)


def _lot(text: str, begin: datetime | None, end: datetime | None) -> CellLot:
    match = re.fullmatch(r"([^/=]+)/([^/=]+)=([0-9]+)", text)
    if match is None or not int(match[3]):
        raise InvalidArgument(f"{text!r} is not POOL/LEVEL=N, such as a100/node=2; `ebb cells` shows pools and levels")
    return CellLot(match[1], match[2], int(match[3]), begin, end)


def _answer_posting(made: Posting, fmt: str | None, quiet: bool) -> None:
    if quiet:
        click.echo(made.id)
    elif fmt is not None:
        output.emit(made, fmt)
    elif made.state is PostingState.MATCHED:
        click.echo(f"{made.kind.name.lower()} {made.id} is met: `ebb exchange list --vc {made.virtual_cluster}` shows it")
    else:
        click.echo(f"{made.kind.name.lower()} {made.id} is on the board until {output.utc(made.expire_time)}")


@click.command()
@click.option("--vc", default="", metavar="NAME", help="Only what this virtual cluster posted.")
@click.option("--all", "every", is_flag=True, help="Also those that have left the board.")
@output_option("json", "yaml", "wide")
@no_header_option
@quiet_option
@click.pass_obj
def board(session: Session, vc: str, every: bool, fmt: str | None, no_header: bool, quiet: bool) -> None:
    """Show the offers and requests that stand on the bulletin board, newest first.

    LEFT: cells of an offer that nobody has at any time of the rest of its window. GPU-HOURS: what an offer asks at least, a
    request pays at most. -o wide adds STATE, POSTED, EXPIRES and BY.

    \b
    Examples:
      ebb exchange board
      ebb exchange board --vc vision --all -o wide
    """
    states = [state for state in PostingState if state] if every else ()
    found = list(session.client.exchange.postings(virtual_cluster=vc, states=states))
    if quiet:
        for posting in found:
            click.echo(posting.id)
    elif fmt in ("json", "yaml"):
        output.emit(found, fmt)
    else:
        wide = fmt == "wide"
        rows = [[*_posting(posting), *(_posting_more(posting) if wide else ())] for posting in found]
        columns = [*COLUMNS, *(("STATE", "POSTED", "EXPIRES", "BY") if wide else ())]
        output.table(columns, rows, header=not no_header)


def _posting(posting: Posting) -> list[str]:
    lot = posting.lot
    price = lot.device_us if posting.bid_device_us is None else posting.bid_device_us
    who = [str(posting.id), posting.kind.name.lower(), posting.virtual_cluster or "(deleted)", cells_words(lot)]
    in_return = "-" if posting.swap is None else f"{cells_words(posting.swap)} {output.utc(posting.swap.begin)}"
    left = str(posting.left) if posting.kind is PostingKind.OFFER else "-"
    return [*who, output.utc(lot.begin), output.utc(lot.end), left, hours(price) if posting.swap is None else "-", in_return]


def _posting_more(posting: Posting) -> list[str]:
    times = output.utc(posting.post_time), output.utc(posting.expire_time)
    return [posting.state.name, *times, "proxy" if posting.by_proxy else "tenant"]


def cells_words(lot: CellLot) -> str:
    return f"{lot.pool}/{lot.level}={lot.cells}"


def hours(device_us: int) -> str:
    return f"{device_us / _GPU_HOUR_US:.2f}"


COMMANDS: tuple[click.Command, ...] = (offer, request, board)
