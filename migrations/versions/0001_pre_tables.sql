-- The tables of the first version; scheduler_service/store/schema/tables.py says the same of the present one.
CREATE TABLE cluster (
    id TEXT NOT NULL,
    seed BIGINT NOT NULL,
    next_job BIGINT NOT NULL,
    next_node BIGINT NOT NULL,
    next_operation BIGINT NOT NULL,
    next_vc BIGINT NOT NULL,
    clock_us BIGINT NOT NULL,
    next_order BIGINT NOT NULL,
    next_exchange BIGINT NOT NULL,
    one BOOLEAN DEFAULT true NOT NULL,
    CONSTRAINT cluster_pkey PRIMARY KEY (one),
    CONSTRAINT cluster_one_row CHECK (one),
    CONSTRAINT cluster_numbers_count_up CHECK (next_job > 0 AND next_node > 0 AND next_operation > 0 AND next_vc > 0),
    CONSTRAINT cluster_exchange_numbers_count_up CHECK (next_order > 0 AND next_exchange > 0),
    CONSTRAINT cluster_id_given CHECK (id <> '')
);

COMMENT ON TABLE cluster IS 'The one row about the cluster as a whole; absent until the first commit of the first leader';
COMMENT ON COLUMN cluster.id IS 'Names the cluster to agents: an agent serves one cluster for its life';
COMMENT ON COLUMN cluster.seed IS 'Of every random choice, together with commit_no';
COMMENT ON COLUMN cluster.next_job IS 'The id that the next job gets';
COMMENT ON COLUMN cluster.clock_us IS 'The time of the last step, behind which time never goes back; microseconds since 1970';
COMMENT ON COLUMN cluster.one IS 'Always true: there is one row';

CREATE TABLE leader (
    holder TEXT NOT NULL,
    address TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    commit_no BIGINT NOT NULL,
    one BOOLEAN DEFAULT true NOT NULL,
    CONSTRAINT leader_pkey PRIMARY KEY (one),
    CONSTRAINT leader_one_row CHECK (one),
    CONSTRAINT leader_numbers_not_negative CHECK (epoch >= 0 AND commit_no >= 0)
);

COMMENT ON TABLE leader IS 'The lease of leadership, and the fence that every commit passes first';
COMMENT ON COLUMN leader.holder IS 'Who leads: a name that no other process has; empty when nobody does';
COMMENT ON COLUMN leader.address IS 'Where clients reach the holder, host:port';
COMMENT ON COLUMN leader.epoch IS 'Raised by every take-over; a commit under a lower epoch is refused';
COMMENT ON COLUMN leader.expires_at IS 'By this database''s clock; then anybody may take the lease';
COMMENT ON COLUMN leader.commit_no IS 'The number of the last commit: the revision of everything, and what a watch resumes from';
COMMENT ON COLUMN leader.one IS 'Always true: there is one row';

CREATE TABLE node (
    id BIGSERIAL NOT NULL,
    name TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    state SMALLINT NOT NULL,
    capacity_cpu_milli BIGINT NOT NULL,
    capacity_memory_mib BIGINT NOT NULL,
    capacity_devices INTEGER NOT NULL,
    levels TEXT[] NOT NULL,
    since_us BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    address TEXT NOT NULL,
    agent_version TEXT NOT NULL,
    drained_us BIGINT,
    drain_reason TEXT NOT NULL,
    drain_user TEXT NOT NULL,
    strikes INTEGER NOT NULL,
    CONSTRAINT node_pkey PRIMARY KEY (id),
    CONSTRAINT node_name_once UNIQUE (name) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT node_state_known CHECK (state IN (1, 2)),
    CONSTRAINT node_capacity_not_negative CHECK (capacity_cpu_milli >= 0 AND capacity_memory_mib >= 0 AND capacity_devices >= 0),
    CONSTRAINT node_id_positive CHECK (id > 0),
    CONSTRAINT node_counters_not_negative CHECK (sequence >= 0 AND strikes >= 0)
);

COMMENT ON TABLE node IS 'Machines with an agent';
COMMENT ON COLUMN node.id IS 'Counts up as nodes first appear: the order in which they are tried';
COMMENT ON COLUMN node.boot_id IS 'Of the agent''s machine; a new one means that nothing from before runs any more';
COMMENT ON COLUMN node.state IS 'Whether its agent is heard: 1 UP, 2 SILENT';
COMMENT ON COLUMN node.capacity_cpu_milli IS 'What jobs may use of the node: thousandths of a CPU core';
COMMENT ON COLUMN node.capacity_memory_mib IS 'What jobs may use of the node: MiB of host memory';
COMMENT ON COLUMN node.capacity_devices IS 'What jobs may use of the node: whole devices';
COMMENT ON COLUMN node.levels IS 'Names of the levels between the node and its devices, outermost first';
COMMENT ON COLUMN node.since_us IS 'When it entered its state; microseconds since 1970';
COMMENT ON COLUMN node.sequence IS 'The last report of this boot that is in the state';
COMMENT ON COLUMN node.address IS 'Where the agent said that the node''s jobs can be reached';
COMMENT ON COLUMN node.drained_us IS 'Since when nothing new is placed on it; null while it is open; microseconds since 1970';
COMMENT ON COLUMN node.drain_user IS 'Who drained it; empty: Ebb itself';
COMMENT ON COLUMN node.strikes IS 'Failures that were the node''s fault, less what went well since';

CREATE TABLE virtual_cluster (
    id BIGSERIAL NOT NULL,
    name TEXT NOT NULL,
    quotas JSONB NOT NULL,
    pins JSONB NOT NULL,
    weight INTEGER NOT NULL,
    policy JSONB NOT NULL,
    CONSTRAINT virtual_cluster_pkey PRIMARY KEY (id),
    CONSTRAINT virtual_cluster_name_once UNIQUE (name) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT virtual_cluster_id_positive CHECK (id > 0),
    CONSTRAINT virtual_cluster_name_given CHECK (name <> ''),
    CONSTRAINT virtual_cluster_weight_positive CHECK (weight > 0),
    CONSTRAINT virtual_cluster_quotas_is_array CHECK (jsonb_typeof(quotas) = 'array'),
    CONSTRAINT virtual_cluster_quotas_positive CHECK (NOT jsonb_path_exists(quotas, '$[*][2] ? (@ < 1)')),
    CONSTRAINT virtual_cluster_pins_is_array CHECK (jsonb_typeof(pins) = 'array'),
    CONSTRAINT virtual_cluster_pins_not_negative CHECK (NOT jsonb_path_exists(pins, '$[*][3] ? (@ < 0)'))
);

COMMENT ON TABLE virtual_cluster IS 'Tenants: what each is guaranteed. Quotas and pins are part of their row, which is always changed as a whole';
COMMENT ON COLUMN virtual_cluster.name IS 'By which jobs name it; not given again to another while it is there';
COMMENT ON COLUMN virtual_cluster.quotas IS 'The cells that it owns: array of [pool, level, how many]';
COMMENT ON COLUMN virtual_cluster.pins IS 'Certain cells that are its alone: array of [name, pool, level, index]';
COMMENT ON COLUMN virtual_cluster.weight IS 'Of its share of opportunistic cells, beside the others''';
COMMENT ON COLUMN virtual_cluster.policy IS 'How it is scheduled inside, by name (see core.vc.VcPolicy)';

CREATE TABLE cell_binding (
    pool TEXT NOT NULL,
    level TEXT NOT NULL,
    index INTEGER NOT NULL,
    vc BIGINT NOT NULL,
    pin TEXT NOT NULL,
    CONSTRAINT cell_binding_pkey PRIMARY KEY (pool, level, index),
    CONSTRAINT cell_binding_vc_exists FOREIGN KEY(vc) REFERENCES virtual_cluster (id),
    CONSTRAINT cell_binding_index_not_negative CHECK (index >= 0)
);

COMMENT ON TABLE cell_binding IS 'Cells of virtual clusters. All other cells are free, and have no rows: they follow from nodes and devices';
COMMENT ON COLUMN cell_binding.level IS 'Of the pool''s tree';
COMMENT ON COLUMN cell_binding.index IS 'The cell''s number among those of its level in the pool';
COMMENT ON COLUMN cell_binding.vc IS 'Whose it is';
COMMENT ON COLUMN cell_binding.pin IS 'Pinned: its name, by which jobs ask for it; empty: bound while guaranteed runs are in it';

CREATE TABLE exchange_order (
    id BIGSERIAL NOT NULL,
    kind SMALLINT NOT NULL,
    vc BIGINT NOT NULL,
    pool TEXT NOT NULL,
    level TEXT NOT NULL,
    cells INTEGER NOT NULL,
    begin_us BIGINT NOT NULL,
    end_us BIGINT NOT NULL,
    devices INTEGER NOT NULL,
    posted_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    bid NUMERIC(38, 0),
    swap JSONB,
    state SMALLINT NOT NULL,
    by_proxy BOOLEAN NOT NULL,
    begins_us BIGINT,
    request_id TEXT NOT NULL,
    CONSTRAINT exchange_order_pkey PRIMARY KEY (id),
    CONSTRAINT exchange_order_kind_known CHECK (kind IN (1, 2)),
    CONSTRAINT exchange_order_state_known CHECK (state IN (1, 2, 3, 4)),
    CONSTRAINT exchange_order_lot_not_empty CHECK (cells > 0 AND begin_us < end_us AND devices >= 0),
    CONSTRAINT exchange_order_id_positive CHECK (id > 0 AND vc > 0),
    CONSTRAINT exchange_order_stands_for_a_time CHECK (posted_us <= expires_us AND expires_us <= end_us),
    CONSTRAINT exchange_order_bid_not_negative CHECK (bid >= 0),
    CONSTRAINT exchange_order_swap_has_no_price CHECK (bid IS NULL OR swap IS NULL),
    CONSTRAINT exchange_order_swap_is_array CHECK (jsonb_typeof(swap) = 'array')
);

CREATE INDEX exchange_order_open ON exchange_order (id) WHERE state = 1;
CREATE UNIQUE INDEX exchange_order_request_once ON exchange_order (vc, request_id) WHERE request_id <> '';
COMMENT ON TABLE exchange_order IS 'Offers and requests of cells; rows stay when they have left the board';
COMMENT ON COLUMN exchange_order.kind IS 'What it is: 1 OFFER, 2 REQUEST';
COMMENT ON COLUMN exchange_order.vc IS 'Whose it is; a virtual cluster that is gone leaves its rows';
COMMENT ON COLUMN exchange_order.cells IS 'How many';
COMMENT ON COLUMN exchange_order.begin_us IS 'When their window begins; microseconds since 1970';
COMMENT ON COLUMN exchange_order.end_us IS 'When it is over; microseconds since 1970';
COMMENT ON COLUMN exchange_order.devices IS 'Of one such cell, when the row was made';
COMMENT ON COLUMN exchange_order.posted_us IS 'When it was posted; microseconds since 1970';
COMMENT ON COLUMN exchange_order.expires_us IS 'When it leaves the board; microseconds since 1970';
COMMENT ON COLUMN exchange_order.bid IS 'What a request pays at most, an offer wants at least; null: as many as the cells have; device-microseconds';
COMMENT ON COLUMN exchange_order.swap IS 'Cells in return: [pool, level, cells, begin, end, devices of one]; null: surplus alone';
COMMENT ON COLUMN exchange_order.state IS 'Whether it is on the board, and why not: 1 OPEN, 2 MATCHED, 3 WITHDRAWN, 4 EXPIRED';
COMMENT ON COLUMN exchange_order.by_proxy IS 'Posted for the tenant by its proxy';
COMMENT ON COLUMN exchange_order.begins_us IS 'When its window begins; null: it has begun, or that was not waited for; microseconds since 1970';
COMMENT ON COLUMN exchange_order.request_id IS 'Given by the client so that a repeated post makes one order; empty when it gave none';

CREATE TABLE exchange (
    id BIGSERIAL NOT NULL,
    offer BIGINT,
    request BIGINT,
    giver BIGINT NOT NULL,
    taker BIGINT NOT NULL,
    pool TEXT NOT NULL,
    level TEXT NOT NULL,
    cells INTEGER NOT NULL,
    begin_us BIGINT NOT NULL,
    end_us BIGINT NOT NULL,
    devices INTEGER NOT NULL,
    price NUMERIC(38, 0) NOT NULL,
    agreed_us BIGINT NOT NULL,
    in_return_for BIGINT,
    state SMALLINT NOT NULL,
    return_asked_by BIGINT NOT NULL,
    opened_us BIGINT,
    returned_us BIGINT,
    request_id TEXT NOT NULL,
    accepted_by BIGINT NOT NULL,
    CONSTRAINT exchange_pkey PRIMARY KEY (id),
    CONSTRAINT exchange_offer_exists FOREIGN KEY(offer) REFERENCES exchange_order (id),
    CONSTRAINT exchange_request_exists FOREIGN KEY(request) REFERENCES exchange_order (id),
    CONSTRAINT exchange_in_return_exists FOREIGN KEY(in_return_for) REFERENCES exchange (id),
    CONSTRAINT exchange_state_known CHECK (state IN (1, 2, 3)),
    CONSTRAINT exchange_lot_not_empty CHECK (cells > 0 AND begin_us < end_us AND devices >= 0),
    CONSTRAINT exchange_id_positive CHECK (id > 0 AND giver > 0 AND taker > 0),
    CONSTRAINT exchange_between_two CHECK (giver <> taker),
    CONSTRAINT exchange_sides_act CHECK (return_asked_by IN (0, giver, taker) AND accepted_by IN (giver, taker)),
    CONSTRAINT exchange_meets_something CHECK (num_nonnulls(offer, request, in_return_for) > 0),
    CONSTRAINT exchange_price_not_negative CHECK (price >= 0),
    CONSTRAINT exchange_active_was_opened CHECK (state <> 2 OR opened_us IS NOT NULL),
    CONSTRAINT exchange_returned_has_time CHECK ((state = 3) = (returned_us IS NOT NULL))
);

CREATE INDEX exchange_live ON exchange (id) WHERE returned_us IS NULL;
CREATE INDEX exchange_of_offer ON exchange (offer) WHERE returned_us IS NULL;
CREATE UNIQUE INDEX exchange_request_once ON exchange (accepted_by, request_id) WHERE request_id <> '';
COMMENT ON TABLE exchange IS 'Cells of one virtual cluster that another has for a window, or had; a swap is two of them';
COMMENT ON COLUMN exchange.offer IS 'The order, if it met one';
COMMENT ON COLUMN exchange.request IS 'The order, if it met one';
COMMENT ON COLUMN exchange.giver IS 'The virtual cluster whose cells they are';
COMMENT ON COLUMN exchange.taker IS 'The virtual cluster that has them for the window';
COMMENT ON COLUMN exchange.cells IS 'How many';
COMMENT ON COLUMN exchange.begin_us IS 'When their window begins; microseconds since 1970';
COMMENT ON COLUMN exchange.end_us IS 'When it is over; microseconds since 1970';
COMMENT ON COLUMN exchange.devices IS 'Of one such cell, when the row was made';
COMMENT ON COLUMN exchange.price IS 'Of surplus; device-microseconds';
COMMENT ON COLUMN exchange.agreed_us IS 'When it was agreed; microseconds since 1970';
COMMENT ON COLUMN exchange.in_return_for IS 'The exchange whose taker gives these cells for it';
COMMENT ON COLUMN exchange.state IS 'Where its window stands: 1 MATCHED, 2 ACTIVE, 3 RETURNED';
COMMENT ON COLUMN exchange.return_asked_by IS 'The side that would end it early, or 0';
COMMENT ON COLUMN exchange.opened_us IS 'When its window was opened; null while it was not; microseconds since 1970';
COMMENT ON COLUMN exchange.returned_us IS 'When it was over; null while it is not; microseconds since 1970';
COMMENT ON COLUMN exchange.request_id IS 'Of the tenant that accepted an order of another; empty when it gave none, or the arbiter matched';
COMMENT ON COLUMN exchange.accepted_by IS 'The side whose request_id that is';

CREATE TABLE exchange_ledger (
    vc BIGINT NOT NULL,
    exchange BIGINT NOT NULL,
    what SMALLINT NOT NULL,
    device_us NUMERIC(38, 0) NOT NULL,
    at_us BIGINT NOT NULL,
    CONSTRAINT exchange_ledger_pkey PRIMARY KEY (vc, exchange, what),
    CONSTRAINT exchange_ledger_exchange_exists FOREIGN KEY(exchange) REFERENCES exchange (id),
    CONSTRAINT exchange_ledger_what_known CHECK (what IN (1, 2)),
    CONSTRAINT exchange_ledger_books_something CHECK (device_us <> 0)
);

CREATE INDEX exchange_ledger_of_exchange ON exchange_ledger (exchange);
COMMENT ON TABLE exchange_ledger IS 'What giving and taking cells was booked with: as much to one side''s credit as to the other''s debit; only added to';
COMMENT ON COLUMN exchange_ledger.vc IS 'Whose surplus it is';
COMMENT ON COLUMN exchange_ledger.exchange IS 'What it was booked for';
COMMENT ON COLUMN exchange_ledger.what IS 'What was booked: 1 AGREED, 2 RETURNED';
COMMENT ON COLUMN exchange_ledger.device_us IS 'Positive: the virtual cluster is credited; device-microseconds';
COMMENT ON COLUMN exchange_ledger.at_us IS 'When it was booked; microseconds since 1970';

CREATE TABLE exchange_surplus (
    vc BIGSERIAL NOT NULL,
    device_us NUMERIC(38, 0) NOT NULL,
    CONSTRAINT exchange_surplus_pkey PRIMARY KEY (vc)
);

COMMENT ON TABLE exchange_surplus IS 'What each virtual cluster has given less what it has taken; stays when it is gone, as others are owed the same';
COMMENT ON COLUMN exchange_surplus.device_us IS 'The sum of what the ledger has for it; negative: it has taken more than it gave; device-microseconds';

CREATE TABLE idle_cells (
    vc BIGINT NOT NULL,
    pool TEXT NOT NULL,
    level TEXT NOT NULL,
    history JSONB NOT NULL,
    due_us BIGINT,
    CONSTRAINT idle_cells_pkey PRIMARY KEY (vc, pool, level),
    CONSTRAINT idle_cells_vc_exists FOREIGN KEY(vc) REFERENCES virtual_cluster (id),
    CONSTRAINT idle_cells_history_is_array CHECK (jsonb_typeof(history) = 'array')
);

COMMENT ON TABLE idle_cells IS 'How many cells of a kind a virtual cluster has had idle, for its proxy; only while that is on';
COMMENT ON COLUMN idle_cells.history IS 'Array of [since when in microseconds since 1970, how many at least], both rising';
COMMENT ON COLUMN idle_cells.due_us IS 'When more of them will have been idle for long enough to be offered; microseconds since 1970';

CREATE TABLE job (
    id BIGSERIAL NOT NULL,
    name TEXT NOT NULL,
    user_name TEXT NOT NULL,
    request_id TEXT NOT NULL,
    job_class SMALLINT NOT NULL,
    demand_cpu_milli BIGINT NOT NULL,
    demand_memory_mib BIGINT NOT NULL,
    demand_devices INTEGER NOT NULL,
    grace_us BIGINT NOT NULL,
    command JSONB NOT NULL,
    environment JSONB NOT NULL,
    working_directory TEXT NOT NULL,
    submitted_us BIGINT NOT NULL,
    state SMALLINT NOT NULL,
    reason SMALLINT NOT NULL,
    detail TEXT NOT NULL,
    cause_job BIGINT NOT NULL,
    run INTEGER NOT NULL,
    requeued BOOLEAN NOT NULL,
    preempted_for_trial INTEGER NOT NULL,
    cancel_requested BOOLEAN NOT NULL,
    started_us BIGINT,
    ended_us BIGINT,
    exit_code INTEGER NOT NULL,
    exit_signal INTEGER NOT NULL,
    spec_more JSONB,
    more JSONB,
    array_job BIGINT NOT NULL,
    array_index INTEGER NOT NULL,
    vc TEXT NOT NULL,
    CONSTRAINT job_pkey PRIMARY KEY (id),
    CONSTRAINT job_job_class_known CHECK (job_class IN (1, 2)),
    CONSTRAINT job_state_known CHECK (state IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
    CONSTRAINT job_reason_known CHECK (reason IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34)),
    CONSTRAINT job_demand_not_negative CHECK (demand_cpu_milli >= 0 AND demand_memory_mib >= 0 AND demand_devices >= 0),
    CONSTRAINT job_id_positive CHECK (id > 0),
    CONSTRAINT job_command_given CHECK (jsonb_typeof(command) = 'array' AND jsonb_array_length(command) > 0),
    CONSTRAINT job_environment_is_array CHECK (jsonb_typeof(environment) = 'array'),
    CONSTRAINT job_grace_not_negative CHECK (grace_us >= 0),
    CONSTRAINT job_counters_not_negative CHECK (run >= 0 AND preempted_for_trial >= 0 AND cause_job >= 0),
    CONSTRAINT job_ended_has_time CHECK ((state IN (6, 7, 8, 10)) = (ended_us IS NOT NULL))
);

CREATE INDEX job_live ON job (id) WHERE ended_us IS NULL;
CREATE INDEX job_of_vc ON job (vc, id);
CREATE UNIQUE INDEX job_request_once ON job (user_name, request_id) WHERE request_id <> '';
COMMENT ON TABLE job IS 'What users submitted; rows stay when the job has ended';
COMMENT ON COLUMN job.user_name IS 'Who submitted it';
COMMENT ON COLUMN job.request_id IS 'Given by the client so that a repeated submit makes one job; empty when it gave none';
COMMENT ON COLUMN job.job_class IS 'FitGpp''s class: 1 TRIAL, 2 BEST_EFFORT';
COMMENT ON COLUMN job.demand_cpu_milli IS 'What a run needs: thousandths of a CPU core';
COMMENT ON COLUMN job.demand_memory_mib IS 'What a run needs: MiB of host memory';
COMMENT ON COLUMN job.demand_devices IS 'What a run needs: whole devices';
COMMENT ON COLUMN job.grace_us IS 'Microseconds between the signal to stop and the kill';
COMMENT ON COLUMN job.command IS 'Program and arguments: an array of strings';
COMMENT ON COLUMN job.environment IS 'Array of [name, value], in the order given';
COMMENT ON COLUMN job.submitted_us IS 'When it was submitted; microseconds since 1970';
COMMENT ON COLUMN job.state IS 'Where the job is in its life: 1 QUEUED, 2 STARTING, 3 RUNNING, 4 STOPPING, 5 UNREACHABLE, 6 SUCCEEDED, 7 FAILED, 8 CANCELLED, 9 SUSPENDED, 10 TIMED_OUT';
COMMENT ON COLUMN job.reason IS 'Why it is in this state: 0 NONE, 1 BEHIND, 2 NO_ROOM, 3 TOO_LARGE, 4 WAITING_FOR_VICTIMS, 5 NOTHING_TO_PREEMPT, 6 PREEMPTED, 7 NODE_LOST, 8 NODE_SILENT, 9 CANCELLED, 10 EXITED, 11 SIGNALLED, 12 LAUNCH_FAILED, 13 EXIT_UNKNOWN, 14 YIELDED, 15 HELD, 16 SUSPENDED, 17 RESUMED, 18 REQUEUED, 19 TIME_LIMIT, 20 OUT_OF_MEMORY, 21 RETRYING, 22 FAILED_ON_SEVERAL_NODES, 23 DEPENDENCY, 24 DEPENDENCY_NEVER, 25 TASK_FAILED, 26 GANG_NOT_READY, 27 NODE_DRAINED, 28 ELEMENTS_FAILED, 29 ARRAY_LIMIT, 30 DEVICE_FAULT, 31 BEYOND_QUOTA, 32 CELLS_FAULTY, 33 RECLAIMED, 34 NEVER_IN_QUOTA';
COMMENT ON COLUMN job.detail IS 'More about the reason, for people';
COMMENT ON COLUMN job.cause_job IS 'The job behind the reason, or 0';
COMMENT ON COLUMN job.run IS 'The current or last launch, counted from 1; 0 before the first';
COMMENT ON COLUMN job.requeued IS 'It has run before, and so stands before those that have not';
COMMENT ON COLUMN job.preempted_for_trial IS 'How often a trial''s preemption of it was decided';
COMMENT ON COLUMN job.started_us IS 'When it first ran; microseconds since 1970';
COMMENT ON COLUMN job.ended_us IS 'When it ended; null while it has not; microseconds since 1970';
COMMENT ON COLUMN job.exit_signal IS 'The signal that ended it, or 0';
COMMENT ON COLUMN job.spec_more IS 'What the user asked for beyond the usual, by name (see core.job.JobSpec); null: nothing';
COMMENT ON COLUMN job.more IS 'What is not as it usually is, by name (see core.job.Job); null: nothing';
COMMENT ON COLUMN job.array_job IS 'The array that it is an element of, or 0';
COMMENT ON COLUMN job.array_index IS 'Its place there';
COMMENT ON COLUMN job.vc IS 'The name of its virtual cluster; empty where the site has none';

CREATE TABLE run (
    job_id BIGINT NOT NULL,
    run INTEGER NOT NULL,
    node BIGINT NOT NULL,
    devices INTEGER[] NOT NULL,
    demand_cpu_milli BIGINT NOT NULL,
    demand_memory_mib BIGINT NOT NULL,
    demand_devices INTEGER NOT NULL,
    phase SMALLINT NOT NULL,
    placed_us BIGINT NOT NULL,
    started_us BIGINT,
    ended_us BIGINT,
    log_path TEXT NOT NULL,
    stop_reason SMALLINT,
    stop_grace_us BIGINT NOT NULL,
    stop_us BIGINT,
    stop_for BIGINT NOT NULL,
    exit_code INTEGER NOT NULL,
    exit_signal INTEGER NOT NULL,
    yielded BOOLEAN NOT NULL,
    lost BOOLEAN NOT NULL,
    task INTEGER NOT NULL,
    ready_at TEXT NOT NULL,
    guarded_us BIGINT,
    guaranteed BOOLEAN NOT NULL,
    CONSTRAINT run_pkey PRIMARY KEY (job_id, run, task),
    CONSTRAINT run_of_job FOREIGN KEY(job_id) REFERENCES job (id),
    CONSTRAINT run_node_exists FOREIGN KEY(node) REFERENCES node (id),
    CONSTRAINT run_phase_known CHECK (phase IN (1, 2, 3, 4, 5)),
    CONSTRAINT run_stop_reason_known CHECK (stop_reason IN (1, 2, 3, 4, 5, 6, 7, 8, 9)),
    CONSTRAINT run_demand_not_negative CHECK (demand_cpu_milli >= 0 AND demand_memory_mib >= 0 AND demand_devices >= 0),
    CONSTRAINT run_counts_from_one CHECK (run > 0 AND task >= 0),
    CONSTRAINT run_grace_not_negative CHECK (stop_grace_us >= 0 AND stop_for >= 0),
    CONSTRAINT run_ended_has_time CHECK ((phase = 4) = (ended_us IS NOT NULL))
);

CREATE UNIQUE INDEX run_one_live ON run (job_id, task) WHERE ended_us IS NULL;
COMMENT ON TABLE run IS 'Launches of jobs: a row for each task';
COMMENT ON COLUMN run.run IS 'Counts up from 1 within the job';
COMMENT ON COLUMN run.devices IS 'Indices of the devices that it was given';
COMMENT ON COLUMN run.demand_cpu_milli IS 'What it holds on the node until it has ended: thousandths of a CPU core';
COMMENT ON COLUMN run.demand_memory_mib IS 'What it holds on the node until it has ended: MiB of host memory';
COMMENT ON COLUMN run.demand_devices IS 'What it holds on the node until it has ended: whole devices';
COMMENT ON COLUMN run.phase IS 'Where the launch stands: 1 STARTING, 2 RUNNING, 3 STOPPING, 4 ENDED, 5 READY';
COMMENT ON COLUMN run.placed_us IS 'When it was given its place; microseconds since 1970';
COMMENT ON COLUMN run.started_us IS 'When its process ran; microseconds since 1970';
COMMENT ON COLUMN run.ended_us IS 'When it ended; null while it has not; microseconds since 1970';
COMMENT ON COLUMN run.log_path IS 'Of its output, on its node';
COMMENT ON COLUMN run.stop_reason IS 'Why it was told to stop; null when it was not: 1 PREEMPTED, 2 CANCELLED, 3 UNCLAIMED, 4 SUSPENDED, 5 REQUEUED, 6 TIME_LIMIT, 7 GANG, 8 DRAINED, 9 RECLAIMED';
COMMENT ON COLUMN run.stop_grace_us IS 'Microseconds that it has to leave by itself';
COMMENT ON COLUMN run.stop_us IS 'When it was told to stop; microseconds since 1970';
COMMENT ON COLUMN run.stop_for IS 'The trial that needs the room, or 0';
COMMENT ON COLUMN run.exit_signal IS 'The signal that ended it, or 0';
COMMENT ON COLUMN run.yielded IS 'It saved its work and left because it was told to';
COMMENT ON COLUMN run.lost IS 'It ended with its node, or nobody knows how it ended';
COMMENT ON COLUMN run.task IS 'The rank within a gang; 0 for a job of one task';
COMMENT ON COLUMN run.ready_at IS 'Of a task of a gang that is ready: where it can be reached, host:port';
COMMENT ON COLUMN run.guarded_us IS 'Until when no trial may have it preempted; null: at any time; microseconds since 1970';
COMMENT ON COLUMN run.guaranteed IS 'It holds cells of its virtual cluster; false: devices to which it has no right';

CREATE TABLE device (
    node BIGINT NOT NULL,
    index INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    model TEXT NOT NULL,
    memory_mib BIGINT NOT NULL,
    path INTEGER[] NOT NULL,
    numa_node INTEGER,
    link_domain INTEGER,
    fault TEXT NOT NULL,
    CONSTRAINT device_pkey PRIMARY KEY (node, index),
    CONSTRAINT device_uuid_once UNIQUE (node, uuid) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT device_node_exists FOREIGN KEY(node) REFERENCES node (id),
    CONSTRAINT device_amounts_not_negative CHECK (index >= 0 AND memory_mib >= 0)
);

COMMENT ON TABLE device IS 'Devices of nodes; which runs hold them is told by the runs';
COMMENT ON COLUMN device.index IS 'As the agent counts its devices';
COMMENT ON COLUMN device.path IS 'Its place in the node''s tree: a number for each of the node''s levels';
COMMENT ON COLUMN device.numa_node IS 'Of the host''s memory that is nearest to it; null where that is not known';
COMMENT ON COLUMN device.link_domain IS 'Devices of the node with the same number reach each other over NVLink or NVSwitch';
COMMENT ON COLUMN device.fault IS 'Why nothing new is placed on it; empty for a healthy one';

CREATE TABLE operation (
    id BIGSERIAL NOT NULL,
    kind SMALLINT NOT NULL,
    phase SMALLINT NOT NULL,
    job_id BIGINT NOT NULL,
    node BIGINT NOT NULL,
    want_cpu_milli BIGINT NOT NULL,
    want_memory_mib BIGINT NOT NULL,
    want_devices INTEGER NOT NULL,
    kept_cpu_milli BIGINT NOT NULL,
    kept_memory_mib BIGINT NOT NULL,
    kept_devices INTEGER NOT NULL,
    victims JSONB NOT NULL,
    created_us BIGINT NOT NULL,
    deadline_us BIGINT,
    tasks INTEGER[] NOT NULL,
    devices JSONB NOT NULL,
    CONSTRAINT operation_pkey PRIMARY KEY (id),
    CONSTRAINT operation_of_job FOREIGN KEY(job_id) REFERENCES job (id),
    CONSTRAINT operation_node_exists FOREIGN KEY(node) REFERENCES node (id),
    CONSTRAINT operation_kind_known CHECK (kind IN (1)),
    CONSTRAINT operation_phase_known CHECK (phase IN (1, 2)),
    CONSTRAINT operation_want_not_negative CHECK (want_cpu_milli >= 0 AND want_memory_mib >= 0 AND want_devices >= 0),
    CONSTRAINT operation_kept_not_negative CHECK (kept_cpu_milli >= 0 AND kept_memory_mib >= 0 AND kept_devices >= 0),
    CONSTRAINT operation_keeps_no_more_than_wanted CHECK (kept_cpu_milli <= want_cpu_milli AND kept_memory_mib <= want_memory_mib AND kept_devices <= want_devices),
    CONSTRAINT operation_victims_is_array CHECK (jsonb_typeof(victims) = 'array'),
    CONSTRAINT operation_devices_is_array CHECK (jsonb_typeof(devices) = 'array'),
    CONSTRAINT operation_id_positive CHECK (id > 0)
);

COMMENT ON TABLE operation IS 'What takes several phases and must survive a change of leader; deleted when done';
COMMENT ON COLUMN operation.kind IS 'What it is: 1 EARMARK';
COMMENT ON COLUMN operation.phase IS 'Where it stands; a new leader goes on from here: 1 VACATING, 2 READY';
COMMENT ON COLUMN operation.job_id IS 'For whom';
COMMENT ON COLUMN operation.want_cpu_milli IS 'What is to be kept in the end: thousandths of a CPU core';
COMMENT ON COLUMN operation.want_memory_mib IS 'What is to be kept in the end: MiB of host memory';
COMMENT ON COLUMN operation.want_devices IS 'What is to be kept in the end: whole devices';
COMMENT ON COLUMN operation.kept_cpu_milli IS 'What is kept now: neither free nor owned by a run: thousandths of a CPU core';
COMMENT ON COLUMN operation.kept_memory_mib IS 'What is kept now: neither free nor owned by a run: MiB of host memory';
COMMENT ON COLUMN operation.kept_devices IS 'What is kept now: neither free nor owned by a run: whole devices';
COMMENT ON COLUMN operation.victims IS 'The runs that promised what is missing: array of [job, run, task]';
COMMENT ON COLUMN operation.created_us IS 'When it began; microseconds since 1970';
COMMENT ON COLUMN operation.deadline_us IS 'When it lapses; null while it cannot; microseconds since 1970';
COMMENT ON COLUMN operation.tasks IS 'The ranks of the job''s tasks that are to run there';
COMMENT ON COLUMN operation.devices IS 'In cells: which devices are kept, an array for each of the tasks; empty: any';

CREATE TABLE job_event (
    job_id BIGINT NOT NULL,
    commit_no BIGINT NOT NULL,
    line INTEGER NOT NULL,
    at_us BIGINT NOT NULL,
    kind SMALLINT NOT NULL,
    run INTEGER NOT NULL,
    node BIGINT NOT NULL,
    reason SMALLINT NOT NULL,
    cause_job BIGINT NOT NULL,
    exit_code INTEGER NOT NULL,
    exit_signal INTEGER NOT NULL,
    text TEXT NOT NULL,
    decision JSONB,
    CONSTRAINT job_event_pkey PRIMARY KEY (job_id, commit_no, line),
    CONSTRAINT job_event_of_job FOREIGN KEY(job_id) REFERENCES job (id),
    CONSTRAINT job_event_kind_known CHECK (kind IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26)),
    CONSTRAINT job_event_reason_known CHECK (reason IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34))
);

COMMENT ON TABLE job_event IS 'Each job''s story, in the order of (commit_no, line); only ever added to';
COMMENT ON COLUMN job_event.commit_no IS 'The commit that made it durable';
COMMENT ON COLUMN job_event.line IS 'Its place among the events of that commit';
COMMENT ON COLUMN job_event.at_us IS 'When it happened; microseconds since 1970';
COMMENT ON COLUMN job_event.kind IS 'What happened: 1 SUBMITTED, 2 PLACED, 3 STARTED, 4 PREEMPTING, 5 PREEMPTED, 6 VACATED, 7 REQUEUED, 8 CANCEL_REQUESTED, 9 NODE_SILENT, 10 NODE_RETURNED, 11 ENDED, 12 EARMARK_DROPPED, 13 HELD, 14 RELEASED, 15 SUSPEND_REQUESTED, 16 SUSPENDED, 17 RESUMED, 18 REQUEUE_REQUESTED, 19 UPDATED, 20 TIME_LIMIT, 21 TASK_ENDED, 22 GANG_READY, 23 DEVICE_FAULT, 24 RECLAIMED, 25 GUARANTEED, 26 OPPORTUNISTIC';
COMMENT ON COLUMN job_event.run IS 'The launch that it is about, or 0';
COMMENT ON COLUMN job_event.node IS 'The node that it is about, or 0';
COMMENT ON COLUMN job_event.reason IS 'Why: 0 NONE, 1 BEHIND, 2 NO_ROOM, 3 TOO_LARGE, 4 WAITING_FOR_VICTIMS, 5 NOTHING_TO_PREEMPT, 6 PREEMPTED, 7 NODE_LOST, 8 NODE_SILENT, 9 CANCELLED, 10 EXITED, 11 SIGNALLED, 12 LAUNCH_FAILED, 13 EXIT_UNKNOWN, 14 YIELDED, 15 HELD, 16 SUSPENDED, 17 RESUMED, 18 REQUEUED, 19 TIME_LIMIT, 20 OUT_OF_MEMORY, 21 RETRYING, 22 FAILED_ON_SEVERAL_NODES, 23 DEPENDENCY, 24 DEPENDENCY_NEVER, 25 TASK_FAILED, 26 GANG_NOT_READY, 27 NODE_DRAINED, 28 ELEMENTS_FAILED, 29 ARRAY_LIMIT, 30 DEVICE_FAULT, 31 BEYOND_QUOTA, 32 CELLS_FAULTY, 33 RECLAIMED, 34 NEVER_IN_QUOTA';
COMMENT ON COLUMN job_event.cause_job IS 'The job behind the reason, or 0';
COMMENT ON COLUMN job_event.text IS 'For people';
COMMENT ON COLUMN job_event.decision IS 'core.job.Decision: why these victims; null for other events';

INSERT INTO leader (holder, address, epoch, expires_at, commit_no) VALUES ('', '', 0, '-infinity', 0);
