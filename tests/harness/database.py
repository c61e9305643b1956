"""The scheduler's PostgreSQL, asked directly, which can hold a commit still on either side of the moment it is durable."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import dict_row

from tests.harness.limits import LIMIT
from tests.store.waiting import wait_for


def embedded_url(place: Path) -> str:
    """Of the PostgreSQL that a scheduler runs itself in this folder."""
    return f"postgresql://ebb@/postgres?host={quote(str(place / 'postgres' / 'socket'), safe='')}"


_HOLDS = "coalesce(jsonb_array_length(parking -> 2), 0) = 0"
"""Of a run: it holds its devices, for it is not parked."""
_ALONE = "coalesce(share_group, 0) = 0"
"""Of a run: it shares its devices with none."""
_BEGUN = "awaits IS NULL"
"""Of a run: it is no destination of a migration, whose source still executes."""
_HELD = f"""
SELECT node, d FROM run, unnest(devices) d WHERE phase <> 4 AND {_HOLDS} AND {_ALONE}
UNION ALL
SELECT (held->>0)::int, d::int FROM share_group, jsonb_array_elements(devices) held, jsonb_array_elements_text(held->1) d
"""
"""The devices that runs hold alone, and those that share groups hold, of which each is held once."""


class Database:
    """The scheduler's PostgreSQL, asked directly."""

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> "psycopg.Connection[dict[str, Any]]":
        return psycopg.connect(self.url, autocommit=True, row_factory=dict_row, application_name="test")

    def ask(self, query: str, *values: object) -> list[dict[str, Any]]:
        with self.connect() as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[arg-type]

    def requests(self, request_id: str) -> list[int]:
        """The jobs of a request_id: one, if the scheduler keeps its word."""
        return [row["id"] for row in self.ask("SELECT id FROM job WHERE request_id = %s ORDER BY id", request_id)]

    def check(self) -> None:
        """What must hold after every commit, said again in SQL of its own: nothing here trusts the schema's constraints."""
        with self.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            nothing = {
                "jobs with two live runs": (
                    f"SELECT job_id FROM run WHERE phase <> 4 AND {_BEGUN} GROUP BY job_id HAVING count(DISTINCT run) > 1"
                ),
                "devices held twice": f"SELECT node, d FROM ({_HELD}) held GROUP BY node, d HAVING count(*) > 1",
                "runs that share devices which their group does not hold": (
                    f"SELECT job_id, node, d FROM run, unnest(devices) d WHERE phase <> 4 AND {_HOLDS} AND NOT {_ALONE}"
                    f" AND (node, d) NOT IN (SELECT node, d FROM ({_HELD}) held)"
                ),
                "devices held that are not there": (
                    "SELECT r.job_id FROM run r CROSS JOIN unnest(devices) d"
                    " LEFT JOIN device v ON (v.node, v.index) = (r.node, d) WHERE r.phase <> 4 AND v.node IS NULL"
                ),
                "nodes with more than they have": (
                    "SELECT n.id FROM node n JOIN run r ON r.node = n.id AND r.phase <> 4 GROUP BY n.id"
                    f" HAVING sum(r.demand_devices) FILTER (WHERE {_HOLDS} AND {_ALONE}) > n.capacity_devices"
                    " OR sum(r.demand_cpu_milli) > n.capacity_cpu_milli"
                ),
                "jobs with more than one end": (
                    "SELECT job_id FROM job_event WHERE kind = 11 GROUP BY job_id HAVING count(*) > 1"
                ),
                "ended jobs without the event": (
                    "SELECT id FROM job WHERE state IN (6, 7, 8, 10) AND NOT EXISTS"
                    " (SELECT FROM job_event e WHERE e.job_id = job.id AND e.kind = 11)"
                ),
                "ended jobs with a live run": (
                    "SELECT id FROM job JOIN run ON job_id = id WHERE state IN (6, 7, 8, 10) AND phase <> 4"
                ),
                "requests with two jobs": (
                    "SELECT request_id FROM job WHERE request_id <> '' GROUP BY user_name, request_id HAVING count(*) > 1"
                ),
                "jobs preempted more often than allowed": "SELECT id FROM job WHERE preempted_for_trial > 1",
            }
            for what, query in nothing.items():
                found = connection.execute(query).fetchall()  # type: ignore[arg-type]
                assert not found, f"{what}: {found}"

    # ---- holding a commit still ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def commits_kept_out(self) -> Iterator[None]:
        """Before: no commit of a scheduler gets past its first statement, as the leader's row is locked."""
        with self.connect() as connection, connection.transaction(force_rollback=True):
            connection.execute("SELECT FROM leader FOR UPDATE")
            yield

    @contextlib.contextmanager
    def answers_withheld(self) -> Iterator[None]:
        """After: a commit becomes durable, and its session does not hear of it, as it waits for a standby that is not there."""
        with self.connect() as admin, self.connect() as probe:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            admin.execute("SELECT pg_reload_conf()")
            try:
                self._wait_until_in_force(admin, probe)
                yield
            finally:
                admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
                admin.execute("SELECT pg_reload_conf()")
                wait_for(lambda: not self._withheld(admin, "%"))

    def wait_until_withheld(self) -> None:
        """A commit of the scheduler is durable, and its answer is withheld."""
        with self.connect() as admin:
            wait_for(lambda: self._withheld(admin, "ebb writer"), LIMIT)

    def wait_until_kept_out(self) -> None:
        """A commit of the scheduler waits for the leader's row."""
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ebb writer' AND wait_event_type = 'Lock'"
        with self.connect() as admin:
            wait_for(lambda: admin.execute(query).fetchall(), LIMIT)

    @staticmethod
    def _withheld(admin: "psycopg.Connection[dict[str, Any]]", name: str) -> list[dict[str, Any]]:
        query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name LIKE %s"
        return admin.execute(query, (name,)).fetchall()

    def _wait_until_in_force(self, admin: "psycopg.Connection[Any]", probe: "psycopg.Connection[Any]") -> None:
        """The server takes the setting up in its own time: commit something until that is withheld."""
        pid = probe.info.backend_pid
        look = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
        emit = b"SELECT pg_logical_emit_message(true, 'test', '')"
        probe.pgconn.send_query(emit)

        def withheld() -> bool:
            row = admin.execute(look, (pid,)).fetchone()
            assert row is not None
            probe.pgconn.consume_input()
            if not probe.pgconn.is_busy():  # else it may have been idle only because it had not begun
                while probe.pgconn.get_result() is not None:
                    pass
                probe.pgconn.send_query(emit)
            return bool(row["wait_event"] == "SyncRep")

        wait_for(withheld)
        admin.execute("SELECT pg_cancel_backend(%s)", (pid,))  # it is committed all the same
        while probe.pgconn.get_result() is not None:
            pass
