"""`ebb share`: who has which share of the cluster, and who has used how much of it."""

import click

from client_sdk.cli.output import common as output
from client_sdk.cli.session import Session, no_header_option, output_option
from client_sdk.models import Share, Shares

COLUMNS = ("PROJECT", "USER", "SHARES", "OF SHARES", "USAGE", "OF USAGE", "FACTOR", "DEVICES", "QUEUED")
NEXT = 10


@click.command(short_help="Show shares of the cluster, and who has used how much.")
@click.option("--vc", envvar="EBB_VC", default="", metavar="NAME", help="Of this virtual cluster.  [default: $EBB_VC]")
@output_option("json", "yaml")
@no_header_option
@click.pass_obj
def share(session: Session, vc: str, fmt: str | None, no_header: bool) -> None:
    """Show who has which share of the cluster, who has used how much of it, and which jobs are next (policy fair).

    Each project is followed by its users, those with the highest factors first: their jobs are next. USAGE is in device-hours,
    and decays. OF SHARES and OF USAGE compare projects with each other, and users of one project. FACTOR is 1 without usage,
    and 0.5 if OF USAGE equals OF SHARES. DEVICES are those in use now, and QUEUED counts jobs.

    \b
    Examples:
      ebb share
      ebb share --vc vision -o json
    """
    found = session.client.shares(vc)
    if fmt is not None:
        output.emit(found, fmt)
        return
    output.table(COLUMNS, map(_row, found.shares), header=not no_header)
    if found.more_shares:
        click.echo(f"and {found.more_shares} more")
    if not no_header:
        click.echo(_queue(found))
        click.echo(f"usage decays to a half in {output.duration(found.half_life)}")


def _row(share: Share) -> list[str]:
    who = [share.project or "-", share.user or "(all)"]
    parts = [f"{share.shares:g}", f"{share.part_of_shares:.1%}", f"{share.device_hours:.2f}", f"{share.part_of_usage:.1%}"]
    return [*who, *parts, f"{share.factor:.3f}", f"{share.devices:g}", str(share.queued)]


def _queue(found: Shares) -> str:
    shown = found.next_job_ids[:NEXT]
    if not shown:
        return "no job is queued"
    more = found.queued - len(shown)
    return f"next: {', '.join(map(str, shown))}" + (f" and {more} more" if more else "")
