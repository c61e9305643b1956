"""A job's output as text, over all the connections and runs that it takes."""

import codecs
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from client_sdk._transport.statuses import NODE_AWAY
from client_sdk._transport.wire import log
from client_sdk._watch_cursor import LogCourse, LogPiece
from client_sdk.errors import EbbError, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from client_sdk._transport.asynchronous import AsyncTransport
    from client_sdk._transport.blocking import Transport


class _Text:
    """Pieces as text: a character may begin in one of them and end in the next."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._next = (0, 0)

    def decode(self, piece: LogPiece) -> str:
        """May be empty. What is half a character at the end of a run is shown as one that cannot be read."""
        before = "" if (piece.run, piece.offset) == self._next else self.end()
        self._next = piece.run, piece.offset + len(piece.data)
        return before + self._decoder.decode(piece.data)

    def end(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


class _Reading:
    """The order in which runs are read. Without a run number, a followed job is followed over all its runs."""

    def __init__(self, course: LogCourse) -> None:
        self.course = course
        self._one = bool(course.run) or not course.follow
        self._missed: EbbError | None = None

    def goes_on(self) -> bool:
        """Whether there may be more when a run's output has ended. Raises what the last one was out of reach with."""
        if not self.course.found and self._missed is not None:
            raise self._missed
        if self._one or not self.course.found:
            return False
        self._missed = None
        self.course.next_run()
        return True

    def survives(self, error: InvalidArgument | Unavailable) -> bool:
        """Whether reading can continue: the job has truncated its output, which is then read from its beginning; or the run has
        ended and its output is on a node that may never return, so that the next run is read."""
        if error.reason == NODE_AWAY and error.metadata.get("over") == "true" and not self._one:
            log.warning("%s; what it wrote there is left out, and its next run waited for", error)
            self._missed = error
            self.course.run = int(error.metadata.get("run", self.course.run))
            self.course.next_run()
            return True
        if error.reason != "OFFSET" or not self.course.offset:
            return False
        self.course.begin_again()
        return True


def read(transport: "Transport", course: LogCourse) -> Iterator[str]:
    """The output as it comes. What there is to refuse is refused with the first piece, which is empty."""
    reading, text = _Reading(course), _Text()
    more = True
    while more:
        try:
            for piece in transport.logs(course):
                yield text.decode(piece)
        except (InvalidArgument, Unavailable) as error:
            if not reading.survives(error):
                raise
        else:
            more = reading.goes_on()
    yield text.end()


def not_empty(pieces: Iterator[str]) -> Iterator[str]:
    return (piece for piece in pieces if piece)


async def read_async(transport: "AsyncTransport", course: LogCourse) -> AsyncGenerator[str, None]:
    """The same, without empty pieces."""
    reading, text = _Reading(course), _Text()
    more = True
    while more:
        try:
            async with aclosing(transport.logs(course)) as pieces:
                async for piece in pieces:
                    if said := text.decode(piece):
                        yield said
        except (InvalidArgument, Unavailable) as error:
            if not reading.survives(error):
                raise
        else:
            more = reading.goes_on()
    if said := text.end():
        yield said
