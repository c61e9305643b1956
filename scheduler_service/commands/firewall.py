"""`ebb-scheduler firewall`: the rules by which the kernel limits connections to the scheduler."""

import sys
from pathlib import Path

import click

from scheduler_service.config import load_or_exit

TABLE = "inet ebb_scheduler"
_RULES = """\
table {table} {{
  set connections4 {{ type ipv4_addr; size 65535; flags dynamic; }}
  set connections6 {{ type ipv6_addr; size 65535; flags dynamic; }}
  chain input {{
    type filter hook input priority filter; policy accept;
    tcp dport {port} ct state new add @connections4 {{ ip saddr ct count over {most} }} counter reject with tcp reset
    tcp dport {port} ct state new add @connections6 {{ ip6 saddr ct count over {most} }} counter reject with tcp reset
  }}
}}
"""


@click.command()
@click.option("--config", "file", metavar="FILE", type=click.Path(path_type=Path), help="As for serve.")
def firewall(file: Path | None) -> None:
    """Print rules for nft that limit the connections to the scheduler's port.

    Each address gets `connections_per_address` connections at a time; further ones are refused by the kernel, before they cost
    the scheduler anything. If that is 0, the rules remove the limit. The rules are a table of their own and touch no other.

    \b
    Example (as root, at each start of the machine; see docs/installing.md):
      ebb-scheduler firewall --config /etc/ebb/scheduler.yaml | nft -f -
    """
    config = load_or_exit(file, {})
    port = int(config.listen.rpartition(":")[2])
    if port == 0:
        click.echo("ebb-scheduler: `listen` has port 0, which is another port at each start: name one", err=True)
        sys.exit(2)
    click.echo(rules(port, config.connections_per_address), nl=False)


def rules(port: int, most: int) -> str:
    """A script for nft that replaces what an earlier one has set up. `most` 0: it only removes that."""
    replaced = f"table {TABLE}\ndelete table {TABLE}\n"
    return replaced + (_RULES.format(table=TABLE, port=port, most=most) if most else "")
