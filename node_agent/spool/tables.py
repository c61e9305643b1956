"""The spool's tables, and how its rows are written and read."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, get_args

from node_agent.run_state.events import RunEvent
from node_agent.run_state.model import CheckpointAt, Gang, LaunchSpec, RunKey, RunPhase, RunRecord, StopReason
from node_agent.run_state.park_state import NEVER_PARKED, ParkStage, ParkState, Rung
from node_agent.run_state.save_values import SaveOutcome, SaveResult
from node_agent.run_state.share_plan import SharePlan, ShareRow

_VERSION = 8
"""Version of the tables below. The first had no number, and no tasks; the second no generations; the third no checkpoint
signals and commands; the fourth no resizes; the fifth no parks; the sixth no kills because of device memory; the seventh no
numbers of parks."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS run (
    job_id INTEGER NOT NULL, run INTEGER NOT NULL, task INTEGER NOT NULL, phase INTEGER NOT NULL, launch TEXT,
    pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, log_path TEXT NOT NULL, stop_received REAL, stop_deadline REAL,
    signalled INTEGER NOT NULL, ended_at REAL, stop_reason INTEGER NOT NULL, stop_cause INTEGER NOT NULL,
    port INTEGER NOT NULL, memory_mib INTEGER NOT NULL, oom_kills INTEGER NOT NULL, out_of_memory INTEGER NOT NULL,
    generation INTEGER NOT NULL, checkpoint_asked INTEGER NOT NULL, checkpoint TEXT NOT NULL,
    stop_resize_to INTEGER NOT NULL, to_park INTEGER NOT NULL, park_limit REAL NOT NULL, park TEXT, share TEXT,
    gang_size INTEGER NOT NULL, gang_nodes INTEGER NOT NULL, device_memory TEXT NOT NULL, park_number INTEGER NOT NULL,
    PRIMARY KEY (job_id, run, task)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS report (
    sequence INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, run INTEGER NOT NULL, task INTEGER NOT NULL, event TEXT NOT NULL);
"""
_FROM_1 = f"""
BEGIN;
ALTER TABLE run RENAME TO run_1;
ALTER TABLE report RENAME TO report_1;
{_SCHEMA}
INSERT INTO run SELECT job_id, run, 0, phase, start_order, pid, start_ticks, log_path, stop_received, stop_deadline,
    signalled, ended_at, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, 0, 0, NULL, NULL, 1, 1, '', 0 FROM run_1;
INSERT INTO report SELECT sequence, job_id, run, 0, event FROM report_1;
DROP TABLE run_1;
DROP TABLE report_1;
INSERT INTO meta VALUES ('schema', {_VERSION});
COMMIT;
"""
_FROM_2 = f"""
BEGIN;
ALTER TABLE run RENAME COLUMN start_order TO launch;
ALTER TABLE run ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
UPDATE run SET phase = {RunPhase.PREPARING:d} WHERE phase = {RunPhase.STARTING:d} AND json_extract(launch, '$.gang.go') = 0;
UPDATE run SET launch = json_remove(launch, '$.gang.go') WHERE launch IS NOT NULL;
UPDATE meta SET value = 3 WHERE name = 'schema';
COMMIT;
"""
_FROM_3 = """
BEGIN;
ALTER TABLE run ADD COLUMN checkpoint_asked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN checkpoint TEXT NOT NULL DEFAULT '';
UPDATE meta SET value = 4 WHERE name = 'schema';
COMMIT;
"""
_FROM_4 = """
BEGIN;
ALTER TABLE run ADD COLUMN stop_resize_to INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET value = 5 WHERE name = 'schema';
COMMIT;
"""
_FROM_5 = """
BEGIN;
ALTER TABLE run ADD COLUMN to_park INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN park_limit REAL NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN park TEXT;
ALTER TABLE run ADD COLUMN share TEXT;
ALTER TABLE run ADD COLUMN gang_size INTEGER NOT NULL DEFAULT 1;
ALTER TABLE run ADD COLUMN gang_nodes INTEGER NOT NULL DEFAULT 1;
UPDATE meta SET value = 6 WHERE name = 'schema';
COMMIT;
"""
_FROM_6 = """
BEGIN;
ALTER TABLE run ADD COLUMN device_memory TEXT NOT NULL DEFAULT '';
UPDATE meta SET value = 7 WHERE name = 'schema';
COMMIT;
"""
_FROM_7 = """
BEGIN;
ALTER TABLE run ADD COLUMN park_number INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET value = 8 WHERE name = 'schema';
COMMIT;
"""


class Newer(ValueError):
    """A newer agent wrote these tables."""


def make(db: sqlite3.Connection) -> None:
    """Make the tables, or migrate those of an older agent. Raises Newer."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "run" not in tables:
        db.executescript(f"BEGIN; {_SCHEMA} INSERT INTO meta VALUES ('schema', {_VERSION}); COMMIT;")
        return
    version = _version(db)
    if version > _VERSION:
        raise Newer(f"a newer agent wrote it (version {version}; this one knows {_VERSION})")
    while version < _VERSION:
        db.executescript({1: _FROM_1, 2: _FROM_2, 3: _FROM_3, 4: _FROM_4, 5: _FROM_5, 6: _FROM_6, 7: _FROM_7}[version])
        version = _version(db)


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("SELECT coalesce(max(value), 1) FROM meta WHERE name = 'schema'").fetchone()
    return int(version)


def row(record: RunRecord) -> tuple[object, ...]:
    return (
        *record.key,
        int(record.phase),
        None if record.launch is None else _text(record.launch),
        record.pid,
        record.start_ticks,
        record.log_path,
        record.stop_received,
        record.stop_deadline,
        record.signalled,
        record.ended_at,
        int(record.stop_reason),
        record.stop_cause,
        record.port,
        record.memory_mib,
        record.oom_kills,
        record.out_of_memory,
        record.generation,
        record.checkpoint_asked,
        record.checkpoint,
        record.stop_resize_to,
        record.to_park,
        record.park_limit,
        None if record.park == NEVER_PARKED else _encode(record.park),
        None if record.share is None else _encode(record.share),
        record.gang_size,
        record.gang_nodes,
        record.device_memory,
        record.park_number,
    )


PLACES = ", ".join("?" * len(row(RunRecord(RunKey(0, 0), RunPhase.ENDED))))


def record(values: tuple[Any, ...]) -> RunRecord:
    (job_id, run, task, phase, launch, pid, ticks, log_path, received, deadline, signalled, ended_at, reason, cause, port,
     memory, kills, out_of_memory, generation, asked, checkpoint, resize_to,
     to_park, park_limit, park, share, size, nodes, device_memory,
     park_number) = values  # fmt: skip
    spec = None if launch is None else _launch(json.loads(launch))
    return RunRecord(
        RunKey(job_id, run, task), RunPhase(phase), spec, pid, ticks, log_path, received, deadline, bool(signalled), ended_at,
        StopReason(reason), cause, port, memory, kills, bool(out_of_memory), generation, bool(asked), checkpoint,
        resize_to, bool(to_park), park_limit, NEVER_PARKED if park is None else _park(json.loads(park)),
        None if share is None else _share(json.loads(share)), size, nodes, device_memory, park_number=park_number,
    )  # fmt: skip


def _park(held: dict[str, Any]) -> ParkState:
    rung = None if held["rung"] is None else Rung(held["rung"])
    return ParkState(**held | {"stage": ParkStage(held["stage"]), "rung": rung, "driver_pids": tuple(held["driver_pids"])})


def _share(held: dict[str, Any]) -> SharePlan:
    rows = tuple(ShareRow(tuple(RunKey(*key) for key in runs), weight) for runs, weight in held["rows"])
    return SharePlan(**held | {"rows": rows, "devices": tuple(held["devices"])})


def _launch(held: dict[str, Any]) -> LaunchSpec:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in held.items()}
    plain["key"] = RunKey(*held["key"])
    for pairs in ("environment", "inherited"):
        plain[pairs] = tuple((name, value) for name, value in held.get(pairs, ()))
    if gang := held.get("gang"):
        plain["gang"] = Gang(**gang | {"nodes": tuple(gang["nodes"])})
    if source := held.get("source"):
        plain["source"] = CheckpointAt(*source)
    if share := held.get("share"):
        plain["share"] = _share(share)
    return LaunchSpec(**plain)


def event_text(event: RunEvent) -> str:
    return _text(event, kind=type(event).__name__)


_encode = json.JSONEncoder(default=asdict).encode


def _text(value: LaunchSpec | RunEvent, **more: str) -> str:
    """Return the value as JSON. `asdict` would copy everything, and so cost several times what the row does."""
    return _encode(more | {name: getattr(value, name) for name in _NAMES[type(value)]})


_EVENTS: Mapping[str, type[RunEvent]] = {kind.__name__: kind for kind in get_args(RunEvent)}
_NAMES: Mapping[type[Any], tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind)) for kind in (LaunchSpec, *_EVENTS.values())
}


def event(text: str) -> RunEvent:
    held = json.loads(text)
    if "phases" in held:
        held["phases"] = tuple((name, seconds) for name, seconds in held["phases"])
    if save := held.get("save"):
        held["save"] = SaveResult(**save | {"outcome": SaveOutcome(save["outcome"])})
    return _EVENTS[held.pop("kind")](**held)
