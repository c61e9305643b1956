"""The database's sessions are ended under load: nothing accepted is lost, nothing is done twice, and the service goes on."""

import threading
from random import Random

import psycopg
from sqlalchemy import Connection, text

from client_sdk import Client, EbbError, JobSpec, Resources
from tests.rpc.server import Agent, Server
from tests.store.waiting import wait_for

SPEC = JobSpec(command=("true",), resources=Resources(cpus=0.001))


def test_sessions_are_ended_under_load(server: Server, database_url: str, conn: Connection) -> None:
    answered: dict[str, int] = {}
    stop = threading.Event()

    def submit(thread: int) -> None:
        with Client(server.address, timeout=5) as client:
            number = 0
            while not stop.is_set():
                try:
                    answered[f"{thread}-{number}"] = client.submit_spec(SPEC, request_id=f"{thread}-{number}").id
                    number += 1
                except EbbError:
                    continue  # the same one again

    threads = [threading.Thread(target=submit, args=(i,)) for i in range(3)]
    random = Random(1)
    conn.rollback()
    mine = conn.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
    for thread in threads:
        thread.start()
    try:
        with psycopg.connect(database_url, autocommit=True, application_name="test") as admin:
            for _ in range(12):
                before = len(answered)
                wait_for(lambda before=before: len(answered) >= before + 10)
                threading.Event().wait(random.uniform(0, 0.02))  # the moment that was drawn
                which = "ebb writer" if random.random() < 0.6 else "ebb%"  # or those that read, and that of the lease, too
                query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s AND pid <> %s"
                assert admin.execute(query, (which, mine)).fetchall()
        with Client(server.address) as client:
            last = max(answered.values())
            assert last in [job.id for job in client.list()]
            assert client.story(last)
        before = len(answered)
        wait_for(lambda: len(answered) >= before + 10)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    rows = {row.request_id: row.id for row in conn.execute(text("SELECT request_id, id FROM job"))}
    assert {request: rows.get(request) for request in answered} == answered
    assert len(set(rows.values())) == len(rows)
    submitted = conn.execute(text("SELECT job_id FROM job_event WHERE kind = 1")).scalars().all()
    assert sorted(submitted) == sorted(rows.values())
    with Agent(server) as agent:
        agent.connect()
        assert agent.orders(), "what was queued is placed"
