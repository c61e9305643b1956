"""The tables, as SQLAlchemy Core metadata. Migrations make exactly these (`tests/store/test_migrations.py`).

Times are bigint microseconds since 1970 and enums are the small integers of `core.job`; docs/adr/0003 says why. What a
column means is said in its comment, which the database carries too. Each rule that a constraint can carry has one, and
its name is what `Rejected.constraint` says when it is broken.
"""

from enum import IntEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB
from sqlalchemy.types import TypeEngine

from scheduler_service.core.access import Role
from scheduler_service.core.job import (
    ENDED,
    EventKind,
    JobClass,
    JobState,
    NodeState,
    OperationKind,
    OperationPhase,
    Reason,
    RunPhase,
    StopReason,
)

metadata = MetaData()


def _column(name: str, type_: TypeEngine[Any], comment: str | None = None, null: bool = False) -> Column[Any]:
    return Column(name, type_, nullable=null, comment=comment)


def _big(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return _column(name, BigInteger(), comment, null)


def _int(name: str, comment: str | None = None, null: bool = False) -> Column[Any]:
    return _column(name, Integer(), comment, null)


def _text(name: str, comment: str | None = None) -> Column[Any]:
    return _column(name, Text(), comment)


def _flag(name: str, comment: str | None = None) -> Column[Any]:
    return _column(name, Boolean(), comment)


def _json(name: str, comment: str, null: bool = False) -> Column[Any]:
    return _column(name, JSONB(none_as_null=True), comment, null)


def _micros(name: str, comment: str, null: bool = False) -> Column[Any]:
    return _column(name, BigInteger(), f"{comment}; microseconds since 1970", null)


def _enum(name: str, values: type[IntEnum], comment: str, null: bool = False) -> Column[Any]:
    listed = ", ".join(f"{value.value} {value.name}" for value in values)
    return _column(name, SmallInteger(), f"{comment}: {listed}", null)


def _vector(name: str, comment: str) -> tuple[Column[Any], ...]:
    return (
        _big(f"{name}_cpu_milli", f"{comment}: thousandths of a CPU core"),
        _big(f"{name}_memory_mib", f"{comment}: MiB of host memory"),
        _int(f"{name}_devices", f"{comment}: whole devices"),
    )


def _known(table: str, column: str, values: type[IntEnum]) -> CheckConstraint:
    numbers = ", ".join(str(value.value) for value in values)
    return CheckConstraint(f"{column} IN ({numbers})", name=f"{table}_{column}_known")


def _amounts(table: str, name: str) -> CheckConstraint:
    parts = " AND ".join(f"{name}_{part} >= 0" for part in ("cpu_milli", "memory_mib", "devices"))
    return CheckConstraint(parts, name=f"{table}_{name}_not_negative")


def _rule(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)


_ENDED_STATES = ", ".join(str(int(state)) for state in sorted(ENDED))

cluster = Table(
    "cluster",
    metadata,
    _text("id", "Names the cluster to agents: an agent serves one cluster for its life"),
    _big("seed", "Of every random choice, together with commit_no"),
    _big("next_job", "The id that the next job gets"),
    _big("next_node"),
    _big("next_operation"),
    _big("next_vc"),
    _micros("clock_us", "The time of the last step, behind which time never goes back"),
    Column("one", Boolean(), nullable=False, server_default=text("true"), comment="Always true: there is one row"),
    PrimaryKeyConstraint("one", name="cluster_pkey"),
    _rule("cluster_one_row", "one"),
    _rule("cluster_numbers_count_up", "next_job > 0 AND next_node > 0 AND next_operation > 0 AND next_vc > 0"),
    _rule("cluster_id_given", "id <> ''"),
    comment="The one row about the cluster as a whole; absent until the first commit of the first leader",
)

leader = Table(
    "leader",
    metadata,
    _text("holder", "Who leads: a name that no other process has; empty when nobody does"),
    _text("address", "Where clients reach the holder, host:port"),
    _big("epoch", "Raised by every take-over; a commit under a lower epoch is refused"),
    _column("expires_at", DateTime(timezone=True), "By this database's clock; then anybody may take the lease"),
    _big("commit_no", "The number of the last commit: the revision of everything, and what a watch resumes from"),
    Column("one", Boolean(), nullable=False, server_default=text("true"), comment="Always true: there is one row"),
    PrimaryKeyConstraint("one", name="leader_pkey"),
    _rule("leader_one_row", "one"),
    _rule("leader_numbers_not_negative", "epoch >= 0 AND commit_no >= 0"),
    comment="The lease of leadership, and the fence that every commit passes first",
)

node = Table(
    "node",
    metadata,
    _big("id", "Counts up as nodes first appear: the order in which they are tried"),
    _text("name"),
    _text("boot_id", "Of the agent's machine; a new one means that nothing from before runs any more"),
    _enum("state", NodeState, "Whether its agent is heard"),
    *_vector("capacity", "What jobs may use of the node"),
    _column("levels", ARRAY(Text()), "Names of the levels between the node and its devices, outermost first"),
    _micros("since_us", "When it entered its state"),
    _big("sequence", "The last report of this boot that is in the state"),
    _text("address", "Where the agent said that the node's jobs can be reached"),
    _text("agent_version"),
    _micros("drained_us", "Since when nothing new is placed on it; null while it is open", null=True),
    _text("drain_reason"),
    _text("drain_user", "Who drained it; empty: Ebb itself"),
    _int("strikes", "Failures that were the node's fault, less what went well since"),
    PrimaryKeyConstraint("id", name="node_pkey"),
    UniqueConstraint("name", name="node_name_once", deferrable=True, initially="DEFERRED"),
    _known("node", "state", NodeState),
    _amounts("node", "capacity"),
    _rule("node_id_positive", "id > 0"),
    _rule("node_counters_not_negative", "sequence >= 0 AND strikes >= 0"),
    comment="Machines with an agent",
)

virtual_cluster = Table(
    "virtual_cluster",
    metadata,
    _big("id"),
    _text("name", "By which jobs name it; not given again to another while it is there"),
    _json("quotas", "The cells that it owns: array of [pool, level, how many]"),
    _json("pins", "Certain cells that are its alone: array of [name, pool, level, index]"),
    _int("weight", "Of its share of opportunistic cells, beside the others'"),
    _json("policy", "How it is scheduled inside, by name (see core.vc.VcPolicy)"),
    PrimaryKeyConstraint("id", name="virtual_cluster_pkey"),
    # Deferred: one may be deleted and another of its name created in one commit.
    UniqueConstraint("name", name="virtual_cluster_name_once", deferrable=True, initially="DEFERRED"),
    _rule("virtual_cluster_id_positive", "id > 0"),
    _rule("virtual_cluster_name_given", "name <> ''"),
    _rule("virtual_cluster_weight_positive", "weight > 0"),
    _rule("virtual_cluster_quotas_is_array", "jsonb_typeof(quotas) = 'array'"),
    _rule("virtual_cluster_quotas_positive", "NOT jsonb_path_exists(quotas, '$[*][2] ? (@ < 1)')"),
    _rule("virtual_cluster_pins_is_array", "jsonb_typeof(pins) = 'array'"),
    _rule("virtual_cluster_pins_not_negative", "NOT jsonb_path_exists(pins, '$[*][3] ? (@ < 0)')"),
    comment="Tenants: what each is guaranteed. Quotas and pins are part of their row, which is always changed as a whole",
)

cell_binding = Table(
    "cell_binding",
    metadata,
    _text("pool"),
    _text("level", "Of the pool's tree"),
    _int("index", "The cell's number among those of its level in the pool"),
    _big("vc", "Whose it is"),
    _text("pin", "Pinned: its name, by which jobs ask for it; empty: bound while guaranteed runs are in it"),
    PrimaryKeyConstraint("pool", "level", "index", name="cell_binding_pkey"),
    ForeignKeyConstraint(["vc"], ["virtual_cluster.id"], name="cell_binding_vc_exists"),
    _rule("cell_binding_index_not_negative", "index >= 0"),
    comment="Cells of virtual clusters. All other cells are free, and have no rows: they follow from nodes and devices",
)

job = Table(
    "job",
    metadata,
    _big("id"),
    _text("name"),
    _text("user_name", "Who submitted it"),
    _text("request_id", "Given by the client so that a repeated submit makes one job; empty when it gave none"),
    _enum("job_class", JobClass, "FitGpp's class"),
    *_vector("demand", "What a run needs"),
    _big("grace_us", "Microseconds between the signal to stop and the kill"),
    _json("command", "Program and arguments: an array of strings"),
    _json("environment", "Array of [name, value], in the order given"),
    _text("working_directory"),
    _micros("submitted_us", "When it was submitted"),
    _enum("state", JobState, "Where the job is in its life"),
    _enum("reason", Reason, "Why it is in this state"),
    _text("detail", "More about the reason, for people"),
    _big("cause_job", "The job behind the reason, or 0"),
    _int("run", "The current or last launch, counted from 1; 0 before the first"),
    _flag("requeued", "It has run before, and so stands before those that have not"),
    _int("preempted_for_trial", "How often a trial's preemption of it was decided"),
    _flag("cancel_requested"),
    _micros("started_us", "When it first ran", null=True),
    _micros("ended_us", "When it ended; null while it has not", null=True),
    _int("exit_code"),
    _int("exit_signal", "The signal that ended it, or 0"),
    _json("spec_more", "What the user asked for beyond the usual, by name (see core.job.JobSpec); null: nothing", null=True),
    _json("more", "What is not as it usually is, by name (see core.job.Job); null: nothing", null=True),
    _big("array_job", "The array that it is an element of, or 0"),
    _int("array_index", "Its place there"),
    _text("vc", "The name of its virtual cluster; empty where the site has none"),
    PrimaryKeyConstraint("id", name="job_pkey"),
    _known("job", "job_class", JobClass),
    _known("job", "state", JobState),
    _known("job", "reason", Reason),
    _amounts("job", "demand"),
    _rule("job_id_positive", "id > 0"),
    _rule("job_command_given", "jsonb_typeof(command) = 'array' AND jsonb_array_length(command) > 0"),
    _rule("job_environment_is_array", "jsonb_typeof(environment) = 'array'"),
    _rule("job_grace_not_negative", "grace_us >= 0"),
    _rule("job_counters_not_negative", "run >= 0 AND preempted_for_trial >= 0 AND cause_job >= 0"),
    _rule("job_ended_has_time", f"(state IN ({_ENDED_STATES})) = (ended_us IS NOT NULL)"),
    comment="What users submitted; rows stay when the job has ended",
)
Index("job_request_once", job.c.user_name, job.c.request_id, unique=True, postgresql_where=text("request_id <> ''"))
Index("job_live", job.c.id, postgresql_where=text("ended_us IS NULL"))

run = Table(
    "run",
    metadata,
    _big("job_id"),
    _int("run", "Counts up from 1 within the job"),
    _big("node"),
    _column("devices", ARRAY(Integer()), "Indices of the devices that it was given"),
    *_vector("demand", "What it holds on the node until it has ended"),
    _enum("phase", RunPhase, "Where the launch stands"),
    _micros("placed_us", "When it was given its place"),
    _micros("started_us", "When its process ran", null=True),
    _micros("ended_us", "When it ended; null while it has not", null=True),
    _text("log_path", "Of its output, on its node"),
    _enum("stop_reason", StopReason, "Why it was told to stop; null when it was not", null=True),
    _big("stop_grace_us", "Microseconds that it has to leave by itself"),
    _micros("stop_us", "When it was told to stop", null=True),
    _big("stop_for", "The trial that needs the room, or 0"),
    _int("exit_code"),
    _int("exit_signal", "The signal that ended it, or 0"),
    _flag("yielded", "It saved its work and left because it was told to"),
    _flag("lost", "It ended with its node, or nobody knows how it ended"),
    _int("task", "The rank within a gang; 0 for a job of one task"),
    _text("ready_at", "Of a task of a gang that is ready: where it can be reached, host:port"),
    _micros("guarded_us", "Until when no trial may have it preempted; null: at any time", null=True),
    _flag("guaranteed", "It holds cells of its virtual cluster; false: devices to which it has no right"),
    PrimaryKeyConstraint("job_id", "run", "task", name="run_pkey"),
    ForeignKeyConstraint(["job_id"], ["job.id"], name="run_of_job"),
    ForeignKeyConstraint(["node"], ["node.id"], name="run_node_exists"),
    _known("run", "phase", RunPhase),
    _known("run", "stop_reason", StopReason),
    _amounts("run", "demand"),
    _rule("run_counts_from_one", "run > 0 AND task >= 0"),
    _rule("run_grace_not_negative", "stop_grace_us >= 0 AND stop_for >= 0"),
    _rule("run_ended_has_time", f"(phase = {int(RunPhase.ENDED)}) = (ended_us IS NOT NULL)"),
    comment="Launches of jobs: a row for each task",
)
# On ended_us and not on phase, so that a change of phase leaves the index alone.
Index("run_one_live", run.c.job_id, run.c.task, unique=True, postgresql_where=text("ended_us IS NULL"))

device = Table(
    "device",
    metadata,
    _big("node"),
    _int("index", "As the agent counts its devices"),
    _text("uuid"),
    _text("model"),
    _big("memory_mib"),
    _column("path", ARRAY(Integer()), "Its place in the node's tree: a number for each of the node's levels"),
    _int("numa_node", "Of the host's memory that is nearest to it; null where that is not known", null=True),
    _int("link_domain", "Devices of the node with the same number reach each other over NVLink or NVSwitch", null=True),
    _text("fault", "Why nothing new is placed on it; empty for a healthy one"),
    PrimaryKeyConstraint("node", "index", name="device_pkey"),
    # Deferred: devices may swap indices when a node boots.
    UniqueConstraint("node", "uuid", name="device_uuid_once", deferrable=True, initially="DEFERRED"),
    ForeignKeyConstraint(["node"], ["node.id"], name="device_node_exists"),
    _rule("device_amounts_not_negative", "index >= 0 AND memory_mib >= 0"),
    comment="Devices of nodes; which runs hold them is told by the runs",
)

operation = Table(
    "operation",
    metadata,
    _big("id"),
    _enum("kind", OperationKind, "What it is"),
    _enum("phase", OperationPhase, "Where it stands; a new leader goes on from here"),
    _big("job_id", "For whom"),
    _big("node"),
    *_vector("want", "What is to be kept in the end"),
    *_vector("kept", "What is kept now: neither free nor owned by a run"),
    _json("victims", "The runs that promised what is missing: array of [job, run, task]"),
    _micros("created_us", "When it began"),
    _micros("deadline_us", "When it lapses; null while it cannot", null=True),
    _column("tasks", ARRAY(Integer()), "The ranks of the job's tasks that are to run there"),
    _json("devices", "In cells: which devices are kept, an array for each of the tasks; empty: any"),
    PrimaryKeyConstraint("id", name="operation_pkey"),
    ForeignKeyConstraint(["job_id"], ["job.id"], name="operation_of_job"),
    ForeignKeyConstraint(["node"], ["node.id"], name="operation_node_exists"),
    _known("operation", "kind", OperationKind),
    _known("operation", "phase", OperationPhase),
    _amounts("operation", "want"),
    _amounts("operation", "kept"),
    _rule(
        "operation_keeps_no_more_than_wanted",
        "kept_cpu_milli <= want_cpu_milli AND kept_memory_mib <= want_memory_mib AND kept_devices <= want_devices",
    ),
    _rule("operation_victims_is_array", "jsonb_typeof(victims) = 'array'"),
    _rule("operation_devices_is_array", "jsonb_typeof(devices) = 'array'"),
    _rule("operation_id_positive", "id > 0"),
    comment="What takes several phases and must survive a change of leader; deleted when done",
)

job_event = Table(
    "job_event",
    metadata,
    _big("job_id"),
    _big("commit_no", "The commit that made it durable"),
    _int("line", "Its place among the events of that commit"),
    _micros("at_us", "When it happened"),
    _enum("kind", EventKind, "What happened"),
    _int("run", "The launch that it is about, or 0"),
    _big("node", "The node that it is about, or 0"),
    _enum("reason", Reason, "Why"),
    _big("cause_job", "The job behind the reason, or 0"),
    _int("exit_code"),
    _int("exit_signal"),
    _text("text", "For people"),
    _json("decision", "core.job.Decision: why these victims; null for other events", null=True),
    PrimaryKeyConstraint("job_id", "commit_no", "line", name="job_event_pkey"),
    ForeignKeyConstraint(["job_id"], ["job.id"], name="job_event_of_job"),
    _known("job_event", "kind", EventKind),
    _known("job_event", "reason", Reason),
    comment="Each job's story, in the order of (commit_no, line); only ever added to",
)

api_token = Table(
    "api_token",
    metadata,
    _big("id"),
    _column("hash", BYTEA(), "SHA-256 of the secret, which only its owner has"),
    _text("last_chars", "The end of the secret, by which its owner recognises it"),
    _text("subject", "Whose it is: the user of the jobs that are submitted with it"),
    _enum("role", Role, "What it is for"),
    _micros("created_us", "When it was made"),
    _micros("expires_us", "From when on it is refused; null where it does not expire", null=True),
    _micros("revoked_us", "When it was taken back; null while it holds", null=True),
    PrimaryKeyConstraint("id", name="api_token_pkey"),
    UniqueConstraint("hash", name="api_token_hash_once"),
    _known("api_token", "role", Role),
    _rule("api_token_id_positive", "id > 0"),
    _rule("api_token_hash_is_sha256", "octet_length(hash) = 32"),
    _rule("api_token_tells_little_of_the_secret", "length(last_chars) <= 6"),
    _rule("api_token_subject_given", "subject <> ''"),
    _rule("api_token_expires_after_it_was_made", "expires_us > created_us"),
    comment="Who may call the API; written by `ebb-scheduler token`, outside of the commits of the leader",
)
