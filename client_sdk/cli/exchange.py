"""`ebb exchange`: cells that virtual clusters give each other for windows of time."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

import click

from client_sdk.cli.many_ids import ask_each
from client_sdk.cli.output import common as output
from client_sdk.cli.output.exchange_board import COMMANDS, cells_words, hours, times
from client_sdk.cli.session import Session, an_id, no_header_option, output_option, quiet_option
from client_sdk.models import CellExchange, ExchangeState, LedgerEntry, Surplus

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("ID", "GIVER", "TAKER", "CELLS", "FROM", "TO", "GPU-HOURS", "STATE")


@click.group()
def exchange() -> None:
    """Give cells to other virtual clusters for a time, and take theirs. What is given and taken is counted in GPU-hours.

    \b
    Examples:
      ebb exchange offer vision a100/node=2 --for 8h
      ebb exchange request speech a100/node=1 --from 2025-01-31T20:00 --for 8h
      ebb exchange board
      ebb exchange accept 7 --vc speech
      ebb exchange list
      ebb exchange ledger
    """


for posting_command in COMMANDS:
    exchange.add_command(posting_command)


# ---- deals -------------------------------------------------------------------------------------------------------------


def _vc_option(command: F) -> F:
    return click.option("--vc", envvar="EBB_VC", metavar="NAME", help="For which virtual cluster.  [default: $EBB_VC]")(command)


_site = click.option("--site", is_flag=True, help="For the site, whoever's it is: operators alone.")


def _required_vc(vc: str | None, site: bool = False) -> str:
    if site:
        return ""
    if not vc:
        raise click.UsageError("say for which virtual cluster: --vc NAME, or EBB_VC")
    return vc


@exchange.command()
@_vc_option
@click.option(
    "--cells", type=click.IntRange(min=1), metavar="N", help="Of an offer: only so many.  [default: all that are left]"
)
@click.option("--from", "begin", metavar="TIME", help="Of an offer: only from then on.")
@click.option("--for", "lasts", metavar="TIME", help="Of an offer: only for so long, from its beginning.")
@click.option("--to", "end", metavar="TIME", help="Of an offer: only until then.")
@click.option("--request-id", metavar="ID", help="The same id never takes twice.")
@output_option("json", "yaml")
@quiet_option
@click.argument("posting", metavar="POSTING", type=an_id)
@click.pass_obj
def accept(
    session: Session,
    vc: str | None,
    cells: int | None,
    begin: str | None,
    lasts: str | None,
    end: str | None,
    request_id: str | None,
    fmt: str | None,
    quiet: bool,
    posting: int,
) -> None:
    """Take an offer, or give what a request asks for.

    \b
    Examples:
      ebb exchange accept 7 --vc speech
      ebb exchange accept 7 --vc speech --cells 1 --for 2h
    """
    now = datetime.now(UTC)
    if lasts is not None and begin is None:
        now = _begin_of(session, posting, now)
    begins, ends = times(begin, lasts, end, now)
    part: dict[str, Any] = {"cells": cells or 0, "begin": begins, "end": ends}
    made = session.client.exchange.accept(posting, _required_vc(vc), request_id=request_id, **part)
    _answer(list(made), fmt, quiet)


def _begin_of(session: Session, posting: int, now: datetime) -> datetime:
    """When the window of a posting on the board begins, if that is to come."""
    window = next((it.lot for it in session.client.exchange.postings() if it.id == posting), None)
    return now if window is None or window.begin is None else max(window.begin, now)


@exchange.command()
@_vc_option
@_site
@quiet_option
@click.argument("postings", metavar="POSTING...", type=an_id, nargs=-1, required=True)
@click.pass_context
def withdraw(ctx: click.Context, vc: str | None, site: bool, quiet: bool, postings: tuple[int, ...]) -> None:
    """Take offers or requests off the board. What was agreed on stays agreed.

    \b
    Example:
      ebb exchange withdraw 7 8 --vc vision
    """
    client, whose = ctx.find_object(Session).client, _required_vc(vc, site)  # type: ignore[union-attr]

    def withdraw_one(posting: int) -> str:
        taken = client.exchange.withdraw(posting, whose)
        return f"{taken.kind.name.lower()} {taken.id} is off the board"

    ask_each(ctx, postings, withdraw_one, lambda said: said, None, quiet, "posting")


@exchange.command("return")
@_vc_option
@_site
@output_option("json", "yaml")
@quiet_option
@click.argument("exchange_id", metavar="EXCHANGE", type=an_id)
@click.pass_obj
def return_(session: Session, vc: str | None, site: bool, fmt: str | None, quiet: bool, exchange_id: int) -> None:
    """Ask to end an exchange early. It ends once both sides have asked.

    The price of the rest of the window is refunded. The taker's jobs in the cells keep running as opportunistic jobs.

    \b
    Examples:
      ebb exchange return 3 --vc speech
      ebb exchange return 3 --site
    """
    _answer([session.client.exchange.give_back(exchange_id, _required_vc(vc, site))], fmt, quiet)


def _answer(made: list[CellExchange], fmt: str | None, quiet: bool) -> None:
    if fmt is not None and not quiet:
        output.emit(made, fmt)
        return
    for one in made:
        click.echo(one.id if quiet else _exchange_text(one))


def _exchange_text(one: CellExchange) -> str:
    lot = one.lot
    if one.state is ExchangeState.RETURNED:
        return f"exchange {one.id} is over: {cells_words(lot)} is {one.giver}'s again"
    if one.return_asked_by:
        other = one.giver if one.return_asked_by == one.taker else one.taker
        return f"exchange {one.id} is over once {other} asks for that, too"
    window = f"from {output.utc(lot.begin)} to {output.utc(lot.end)}"
    price = f"{hours(one.price_device_us)} GPU-hours"
    return f"exchange {one.id}: {one.taker} has {cells_words(lot)} of {one.giver}'s {window}, for {price}"


@exchange.command("list")
@click.option("--vc", default="", metavar="NAME", help="Only those of which this virtual cluster is a side.")
@click.option("--all", "every", is_flag=True, help="Also those that are over.")
@output_option("json", "yaml", "wide")
@no_header_option
@quiet_option
@click.pass_obj
def list_(session: Session, vc: str, every: bool, fmt: str | None, no_header: bool, quiet: bool) -> None:
    """List exchanges, newest first. MATCHED: agreed, and not begun; ACTIVE: the taker owns the cells.

    -o wide adds POSTINGS (the offer and the request that were met), AGREED and NOTE.

    \b
    Examples:
      ebb exchange list
      ebb exchange list --vc vision --all
    """
    states = [state for state in ExchangeState if state] if every else ()
    found = list(session.client.exchange.exchanges(virtual_cluster=vc, states=states))
    if quiet:
        for one in found:
            click.echo(one.id)
    elif fmt in ("json", "yaml"):
        output.emit(found, fmt)
    else:
        wide = fmt == "wide"
        rows = [[*_exchange(one), *(_exchange_more(one) if wide else ())] for one in found]
        columns = [*COLUMNS, *(("POSTINGS", "AGREED", "NOTE") if wide else ())]
        output.table(columns, rows, header=not no_header)


def _exchange(one: CellExchange) -> list[str]:
    lot = one.lot
    who = [str(one.id), one.giver or "(deleted)", one.taker or "(deleted)", cells_words(lot)]
    return [*who, output.utc(lot.begin), output.utc(lot.end), hours(one.price_device_us), one.state.name]


def _exchange_more(one: CellExchange) -> list[str]:
    postings = ",".join(str(posting) for posting in (one.offer_posting_id, one.request_posting_id) if posting) or "-"
    notes = [f"in return for {one.in_return_for}"] if one.in_return_for else []
    notes += [f"{one.return_asked_by} would end it"] if one.return_asked_by and one.return_time is None else []
    return [postings, output.utc(one.agree_time), ", ".join(notes) or "-"]


# ---- the ledger --------------------------------------------------------------------------------------------------------


@exchange.command()
@click.option("--entries", is_flag=True, help="What was booked, that of the newest exchange first, instead of the sums.")
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Of the entries.")
@output_option("json", "yaml")
@no_header_option
@click.argument("vc", default="")
@click.pass_obj
def ledger(session: Session, vc: str, entries: bool, limit: int, fmt: str | None, no_header: bool) -> None:
    """Show what each virtual cluster has given less what it has taken, in GPU-hours. All of it together is 0.

    \b
    Examples:
      ebb exchange ledger
      ebb exchange ledger vision --entries
    """
    market = session.client.exchange
    found = list(islice(market.ledger(virtual_cluster=vc), limit)) if entries else list(market.surpluses(virtual_cluster=vc))
    if fmt is not None:
        output.emit(found, fmt)
        return
    columns = ("VC", "EXCHANGE", "WHAT", "GPU-HOURS", "TIME") if entries else ("VC", "GPU-HOURS")
    output.table(columns, [_ledger_row(row) for row in found], header=not no_header)


def _ledger_row(row: LedgerEntry | Surplus) -> list[str]:
    name, amount = row.virtual_cluster or "(deleted)", f"{row.gpu_hours:+.2f}"
    if isinstance(row, Surplus):
        return [name, amount]
    return [name, str(row.exchange_id), row.kind.name.lower(), amount, output.utc(row.time)]
