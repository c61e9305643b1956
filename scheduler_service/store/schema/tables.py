"""The tables, as SQLAlchemy Core metadata. Migrations make exactly these (`tests/store/test_migrations.py`).

Times are bigint microseconds since 1970 and enums are the small integers of `core.model.enums`; docs/adr/0003 says why. What a
column means is said in its comment, which the database carries too. Each rule that a constraint can carry has one, and
its name is what `Rejected.constraint` says when it is broken.
"""

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from scheduler_service.core.model import NodeState
from scheduler_service.core.model.tokens import Role
from scheduler_service.store.schema.columns import (
    big,
    column,
    enum,
    flag,
    integer,
    json,
    micros,
    rule,
    string,
    table,
    vector,
)
from scheduler_service.store.schema.columns import metadata as metadata
from scheduler_service.store.schema.exchange import exchange as exchange
from scheduler_service.store.schema.exchange import exchange_ledger as exchange_ledger
from scheduler_service.store.schema.exchange import exchange_posting as exchange_posting
from scheduler_service.store.schema.exchange import exchange_surplus as exchange_surplus
from scheduler_service.store.schema.exchange import idle_cells as idle_cells
from scheduler_service.store.schema.jobs import earmark as earmark
from scheduler_service.store.schema.jobs import job as job
from scheduler_service.store.schema.jobs import job_event as job_event
from scheduler_service.store.schema.jobs import operation as operation
from scheduler_service.store.schema.jobs import run as run
from scheduler_service.store.schema.jobs import share_group as share_group

cluster = table(
    "cluster",
    string("id", "Names the cluster to agents: an agent serves one cluster for its life"),
    big("seed", "Of every random choice, together with commit_no"),
    big("next_job", "The id that the next job gets"),
    big("next_node"),
    big("next_earmark"),
    big("next_vc"),
    micros("clock_us", "The time of the last step, behind which time never goes back"),
    big("next_posting"),
    big("next_exchange"),
    big("next_share_group", "Null: 1, the first", null=True),
    big("next_operation", "Null: 1, the first", null=True),
    Column("one", Boolean(), nullable=False, server_default=text("true"), comment="Always true: there is one row"),
    PrimaryKeyConstraint("one", name="cluster_pkey"),
    rule("cluster_one_row", "one"),
    rule("cluster_numbers_count_up", "next_job > 0 AND next_node > 0 AND next_earmark > 0 AND next_vc > 0"),
    rule("cluster_exchange_numbers_count_up", "next_posting > 0 AND next_exchange > 0"),
    rule("cluster_share_groups_count_up", "next_share_group > 0"),
    rule("cluster_operations_count_up", "next_operation > 0"),
    rule("cluster_id_given", "id <> ''"),
    comment="The one row about the cluster as a whole; absent until the first commit of the first leader",
)

leader = table(
    "leader",
    string("holder", "Who leads: a name that no other process has; empty when nobody does"),
    string("address", "Where clients reach the holder, host:port"),
    big("epoch", "Raised by every take-over; a commit under a lower epoch is refused"),
    column("expires_at", DateTime(timezone=True), "By this database's clock; then anybody may take the lease"),
    big("commit_no", "The number of the last commit: the revision of everything, and what a watch resumes from"),
    Column("one", Boolean(), nullable=False, server_default=text("true"), comment="Always true: there is one row"),
    PrimaryKeyConstraint("one", name="leader_pkey"),
    rule("leader_one_row", "one"),
    rule("leader_numbers_not_negative", "epoch >= 0 AND commit_no >= 0"),
    comment="The lease of leadership, and the fence that every commit passes first",
)

node = table(
    "node",
    big("id", "Counts up as nodes first appear: the order in which they are tried"),
    string("name"),
    string("boot_id", "Of the agent's machine; a new one means that nothing from before runs any more"),
    enum("state", NodeState, "Whether its agent is heard"),
    *vector("capacity", "What jobs may use of the node"),
    column("levels", ARRAY(Text()), "Names of the levels between the node and its devices, outermost first"),
    micros("since_us", "When it entered its state"),
    big("sequence", "The last report of this boot that is in the state"),
    string("address", "Where the agent said that the node's jobs can be reached"),
    string("agent_version"),
    micros("drained_us", "Since when nothing new is placed on it; null while it is open", null=True),
    string("drain_reason"),
    string("drain_user", "Who drained it; empty: Ebb itself"),
    integer("strikes", "Failures that were the node's fault, less what went well since"),
    json("labels", "As its agent reports them: an object of strings; null: it has none", null=True),
    string("checkpoints_at", "Where other nodes fetch checkpoints, host:port; null: nowhere", null=True),
    json(
        "strike_causes",
        "The last strikes: array of [job, user or null, what it did]; null: none is known",
        null=True,
    ),
    PrimaryKeyConstraint("id", name="node_pkey"),
    UniqueConstraint("name", name="node_name_once", deferrable=True, initially="DEFERRED"),
    rule("node_id_positive", "id > 0"),
    rule("node_counters_not_negative", "sequence >= 0 AND strikes >= 0"),
    rule("node_labels_is_object", "jsonb_typeof(labels) = 'object'"),
    rule("node_strike_causes_is_array", "jsonb_typeof(strike_causes) = 'array'"),
    comment="Machines with an agent",
)

virtual_cluster = table(
    "virtual_cluster",
    big("id"),
    string("name", "By which jobs name it; not given again to another while it is there"),
    json("quotas", "The cells that it owns: array of [pool, level, how many]"),
    json("pins", "Certain cells that are its alone: array of [name, pool, level, index]"),
    integer("weight", "Of its share of opportunistic cells, beside the others'"),
    json("policy", "How it is scheduled inside, by name (see core.vc.VcPolicy)"),
    PrimaryKeyConstraint("id", name="virtual_cluster_pkey"),
    # Deferred: one may be deleted and another of its name created in one commit.
    UniqueConstraint("name", name="virtual_cluster_name_once", deferrable=True, initially="DEFERRED"),
    rule("virtual_cluster_id_positive", "id > 0"),
    rule("virtual_cluster_name_given", "name <> ''"),
    rule("virtual_cluster_weight_positive", "weight > 0"),
    rule("virtual_cluster_quotas_is_array", "jsonb_typeof(quotas) = 'array'"),
    rule("virtual_cluster_quotas_positive", "NOT jsonb_path_exists(quotas, '$[*][2] ? (@ < 1)')"),
    rule("virtual_cluster_pins_is_array", "jsonb_typeof(pins) = 'array'"),
    rule("virtual_cluster_pins_not_negative", "NOT jsonb_path_exists(pins, '$[*][3] ? (@ < 0)')"),
    comment="Tenants: what each is guaranteed. Quotas and pins are part of their row, which is always changed as a whole",
)

cell_binding = table(
    "cell_binding",
    string("pool"),
    string("level", "Of the pool's tree"),
    integer("index", "The cell's number among those of its level in the pool"),
    big("vc", "Whose it is"),
    string("pin", "Pinned: its name, by which jobs ask for it; empty: bound while guaranteed runs are in it"),
    PrimaryKeyConstraint("pool", "level", "index", name="cell_binding_pkey"),
    ForeignKeyConstraint(["vc"], ["virtual_cluster.id"], name="cell_binding_vc_exists"),
    rule("cell_binding_index_not_negative", "index >= 0"),
    comment="Cells of virtual clusters. All other cells are free, and have no rows: they follow from nodes and devices",
)

device = table(
    "device",
    big("node"),
    integer("index", "As the agent counts its devices"),
    string("uuid"),
    string("model"),
    big("memory_mib"),
    column("path", ARRAY(Integer()), "Its place in the node's tree: a number for each of the node's levels"),
    integer("numa_node", "Of the host's memory that is nearest to it; null where that is not known", null=True),
    integer("link_domain", "Devices of the node with the same number reach each other over NVLink or NVSwitch", null=True),
    string("fault", "Why nothing new is placed on it; empty for a healthy one"),
    PrimaryKeyConstraint("node", "index", name="device_pkey"),
    # Deferred: devices may swap indices when a node boots.
    UniqueConstraint("node", "uuid", name="device_uuid_once", deferrable=True, initially="DEFERRED"),
    ForeignKeyConstraint(["node"], ["node.id"], name="device_node_exists"),
    rule("device_amounts_not_negative", "index >= 0 AND memory_mib >= 0"),
    comment="Devices of nodes; which runs hold them is told by the runs",
)

memo = table(
    "memo",
    string("policy", "Whose it is, by the name of the policy"),
    string("subject", "What it is about, in words of the policy's own"),
    json("value", "Array of numbers and strings, which only the policy reads"),
    big("job_id", "It is deleted when this job ends; null: when the policy does so", null=True),
    micros("due_us", "When the policy is asked, though nothing else happens; null: it need not be", null=True),
    flag("due", "That time was reached, and the policy has not written it again since"),
    PrimaryKeyConstraint("policy", "subject", name="memo_pkey"),
    ForeignKeyConstraint(["job_id"], ["job.id"], name="memo_of_job"),
    rule("memo_policy_given", "policy <> ''"),
    rule("memo_value_is_array", "jsonb_typeof(value) = 'array'"),
    rule("memo_due_once", "NOT (due AND due_us IS NOT NULL)"),
    comment="What policies remember between two steps",
)

history = table(
    "history",
    string("user_name", "Whose script it is"),
    string("script", "Hash of the command, numbers among its arguments apart (see core.operations.history)"),
    json("runs", "Array of [model, devices, CPU in thousandths, tasks, [numbers], microseconds], the newest last"),
    micros("used_us", "When the newest was added"),
    PrimaryKeyConstraint("user_name", "script", name="history_pkey"),
    rule("history_runs_is_array", "jsonb_typeof(runs) = 'array'"),
    comment="How long the last runs of users' scripts took, for estimates of later ones; the oldest rows are deleted",
)

api_token = table(
    "api_token",
    big("id"),
    column("hash", BYTEA(), "SHA-256 of the secret, which only its owner has"),
    string("last_chars", "The end of the secret, by which its owner recognises it"),
    string("subject", "Whose it is: the user of the jobs that are submitted with it"),
    enum("role", Role, "What it is for"),
    micros("created_us", "When it was made"),
    micros("expires_us", "From when on it is refused; null where it does not expire", null=True),
    micros("revoked_us", "When it was taken back; null while it holds", null=True),
    PrimaryKeyConstraint("id", name="api_token_pkey"),
    UniqueConstraint("hash", name="api_token_hash_once"),
    rule("api_token_id_positive", "id > 0"),
    rule("api_token_hash_is_sha256", "octet_length(hash) = 32"),
    rule("api_token_tells_little_of_the_secret", "length(last_chars) <= 6"),
    rule("api_token_subject_given", "subject <> ''"),
    rule("api_token_expires_after_it_was_made", "expires_us > created_us"),
    comment="Who may call the API; written by `ebb-scheduler token`, outside of the commits of the leader",
)

user_file = table(
    "user_file",
    string("owner", "The user of the jobs that may use it"),
    string("name", "Of a snapshot, its SHA-256; of a result, result-JOB.RUN"),
    big("size", "Bytes of the whole"),
    big("stored", "Bytes that have arrived"),
    flag("complete", "All bytes have arrived, and are what they should be"),
    micros("used_us", "When it was last written, or named by a job that was submitted"),
    PrimaryKeyConstraint("owner", "name", name="user_file_pkey"),
    rule("user_file_size_positive", "size > 0"),
    rule("user_file_stored_within_size", "stored BETWEEN 0 AND size"),
    rule("user_file_complete_when_stored", "NOT complete OR stored = size"),
    comment="Snapshots and results, which travel with jobs; written by the calls of users and agents, outside of the commits",
)

user_file_piece = table(
    "user_file_piece",
    string("owner"),
    string("name"),
    big("at", "How many bytes are before it"),
    column("data", BYTEA()),
    PrimaryKeyConstraint("owner", "name", "at", name="user_file_piece_pkey"),
    ForeignKeyConstraint(
        ["owner", "name"], ["user_file.owner", "user_file.name"], name="user_file_piece_of_file", ondelete="CASCADE"
    ),
    comment="The content of user files, in pieces",
)
