"""Addresses of the service and of its database: what is wrong with one, and what may be shown of it."""

import re
from ipaddress import ip_address

DEFAULT_LISTEN = "127.0.0.1:7737"


def check_listen(address: str) -> None:
    """Raises ValueError where nothing can listen there. Port 0 is any free one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not HOST:PORT, such as {DEFAULT_LISTEN}")
    _check_brackets(host, port)


def check_advertise(address: str) -> None:
    """Raises ValueError where nobody can connect there."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[^\s,@/]+", host) or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) <= 65535:
        raise ValueError(f"{address!r} is not HOST:PORT, such as sched-1.example.org:7737")
    _check_brackets(host, port)
    if is_wildcard(address):
        raise ValueError(f"nobody can connect to {address!r}: say where this machine is")


def _check_brackets(host: str, port: str) -> None:
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"'{host}:{port}' has an address of IPv6 without brackets: write [{host}]:{port}")


def host_of(address: str) -> str:
    return address.rpartition(":")[0]


def is_wildcard(address: str) -> bool:
    """Whether who listens there listens on every address of the machine."""
    try:
        return ip_address(host_of(address).strip("[]")).is_unspecified
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    host = host_of(address)
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_url(url: str) -> None:
    """Raises ValueError where this is no URL of a PostgreSQL database."""
    from sqlalchemy import make_url  # takes a while to load, and only who serves has a URL

    if not url.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        raise ValueError("database must be a URL that begins with postgresql://")
    try:
        host = make_url(url).host or ""
    except Exception:
        raise ValueError(
            f"database: {without_password(url)} is not postgresql://USER@HOST:PORT/NAME, with a port of digits"
        ) from None
    if "@" in host:
        raise ValueError(f"database: {without_password(url)} has more than one @: write one in a password as %40")


def without_password(text: str) -> str:
    """A URL as it may be shown: up to the last @ before the path, in case the password has one."""
    text = re.sub(r"(://[^:/@]*):[^/?#]*@", r"\1:***@", text)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", text)
