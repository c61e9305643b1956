"""Tells systemd how a daemon is doing: sd_notify(3), for a unit with Type=notify."""

import asyncio
import os

import sdnotify  # type: ignore[import-untyped]  # no stubs exist

_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Silent where no NOTIFY_SOCKET is set. Takes what it finds out of the environment: no child is to speak for us."""

    def __init__(self) -> None:
        address, interval, watched = (os.environ.get(name, "") for name in _OURS)
        self._socket = sdnotify.SystemdNotifier() if address else None
        if self._socket is not None and self._socket.socket is not None:
            self._socket.socket.setblocking(False)  # who does not listen is not waited for
        for_us = address and interval.isdigit() and watched in ("", str(os.getpid()))
        self._pause = int(interval) / 2e6 if for_us else 0.0
        self._is_ready = False
        self._status = ""
        for name in _OURS:
            os.environ.pop(name, None)

    def ready(self) -> None:
        """Safe to repeat."""
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1")

    def status(self, text: str) -> None:
        """Set the text that `systemctl status` shows."""
        line = " ".join(text.split())
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    async def watchdog(self) -> None:
        """Says, from the event loop, that the event loop turns; forever, or not at all where nobody watches."""
        while self._pause:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._pause)

    def _send(self, text: str) -> None:
        if self._socket is not None:
            # The library encodes in Latin-1, and systemd reads UTF-8.
            self._socket.notify(text.encode(errors="replace").decode("latin-1"))
