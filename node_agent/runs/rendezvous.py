"""The meeting point of a gang's tasks: this node's address, and a port reserved for rank 0 until it listens there itself."""

import random
import socket
from collections.abc import Callable
from pathlib import Path

from node_agent.run_state.model import RunKey

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 16384
_TRIES = 64


class Rendezvous:
    """Ports are reserved by sockets that are bound and do not listen, so they are free as soon as those are closed.

    `address` is called when it is first needed, since name resolution may not work yet when the agent starts.
    """

    def __init__(self, address: Callable[[], str]) -> None:
        self._find_address = address
        self._address = ""
        self._kept: dict[RunKey, socket.socket] = {}

    def address(self) -> str:
        """Return the address at which other nodes reach this one. Raises OSError."""
        if not self._address:
            self._address = self._find_address()
        return self._address

    def keep(self, key: RunKey, before: int = 0) -> int:
        """Reserve a port for a run: the one that it had before, if that is still free. Raises OSError."""
        if key not in self._kept:
            self._kept[key] = _bind_free_port(before)
        port: int = self._kept[key].getsockname()[1]
        return port

    def release(self, key: RunKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        for kept in self._kept.values():
            kept.close()


def address_towards(target: str) -> str:
    """Return this machine's address on its route to HOST:PORT. Nothing is sent. Raises OSError."""
    host, _, port = target.rpartition(":")
    family, kind, protocol, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)
        address: str = probe.getsockname()[0]
        return address


def _bind_free_port(wanted: int) -> socket.socket:
    """Return a socket on the wanted port, or on one outside the kernel's automatic range: between its release here and the
    moment at which the run listens, no outgoing connection of a stranger may take it."""
    highest = int(_RANGE.read_text(encoding="ascii").split()[0]) - 1
    choices = [wanted] if wanted else []
    if highest > _LOWEST:
        choices += [random.randint(_LOWEST, highest) for _ in range(_TRIES)]
    for port in (*choices, 0):
        if (kept := _bind(port)) is not None:
            return kept
    raise OSError("no port is free")


def _bind(port: int) -> socket.socket | None:
    """Bind the port on every address, since the run may listen on any. No SO_REUSEADDR: others could bind the port, too."""
    kept = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    try:
        if kept.family is socket.AF_INET6:
            kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        kept.bind(("", port))
    except OSError:
        kept.close()
        return None
    return kept
