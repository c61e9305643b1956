"""Prepared statements sent to PostgreSQL together, straight through libpq.

psycopg's own pipeline passes through a generator and a wait for each statement, which costs three times what this does; a
commit is on the path of every job.
"""

import select
from collections.abc import Sequence
from typing import NamedTuple

from psycopg import OperationalError
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult


class Statement(NamedTuple):
    """A statement that a session prepares once and then knows by name; its text may have parameters, $1 and up."""

    name: bytes
    sql: bytes


Call = tuple[Statement, bytes | None]
"""A statement with its parameter, as text, if it has one."""


def execute(session: PGconn, prepared: set[bytes], calls: Sequence[Call]) -> list[PGresult]:
    """The result of each call. `prepared` is kept by the caller, a set for each session.

    Raises the error of the first call that the server refused, after which it did none of those that follow. Raises
    OperationalError when the connection was lost without a word; it is closed then. Ends no transaction.
    """
    results: list[tuple[bytes, PGresult]] = []
    try:
        session.enter_pipeline_mode()
        sent = _send(session, prepared, calls)
        _flush(session)
        for name in sent:
            results.append((name, _next_result(session)))
        _next_result(session)  # that of the synchronization, which ends the pipeline
        session.exit_pipeline_mode()
    except BaseException:
        session.finish()  # it is lost, or out of step, so that it can be asked nothing any more
        _raise_refusal(results)
        raise
    prepared.update(name for name, result in results if name and result.status == ExecStatus.COMMAND_OK)
    _raise_refusal(results)
    return [result for name, result in results if not name]


def _send(session: PGconn, prepared: set[bytes], calls: Sequence[Call]) -> list[bytes]:
    """For each result to come, the name of the statement that it is the preparation of; empty for a call."""
    sent = []
    for (name, sql), parameter in calls:
        if name not in prepared and name not in sent:
            session.send_prepare(name, sql)
            sent.append(name)
        session.send_query_prepared(name, None if parameter is None else [parameter])
        sent.append(b"")
    session.pipeline_sync()
    return sent


def _flush(session: PGconn) -> None:
    while session.flush():  # the server may wait for us to read before it reads on
        poll = select.poll()
        poll.register(session.socket, select.POLLIN | select.POLLOUT)
        if any(event & select.POLLIN for _, event in poll.poll()):
            session.consume_input()


def _next_result(session: PGconn) -> PGresult:
    """The next result. libpq says with a None that those of a call are complete: after each there is one."""
    for _ in range(2):
        while session.is_busy():
            poll = select.poll()
            poll.register(session.socket, select.POLLIN)
            poll.poll()
            session.consume_input()
        result = session.get_result()
        if result is not None:
            return result
    raise OperationalError(session.get_error_message())


def _raise_refusal(results: Sequence[tuple[bytes, PGresult]]) -> None:
    for _, result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
