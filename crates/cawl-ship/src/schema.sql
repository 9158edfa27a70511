-- Version 1. docs/reference/EXPORT.md has the meaning of the columns.

-- Runs that `cawl-cli export --to postgres://…` brought.
CREATE TABLE cawl_runs (
    run text PRIMARY KEY,
    host text,
    kernel text,
    cpus int,
    memory_bytes bigint,
    page_bytes bigint,
    traced_at timestamptz,
    traced_at_ns bigint,
    model text NOT NULL,
    mode text NOT NULL,
    learn boolean NOT NULL,
    profile text NOT NULL,
    cawl_version text NOT NULL,
    calls bigint NOT NULL,
    notes text,
    exported_at timestamptz NOT NULL DEFAULT now()
);

-- Their calls.
CREATE TABLE cawl_calls (
    run text NOT NULL DEFAULT current_setting('cawl.run'),
    call bigint NOT NULL,
    start_ns bigint NOT NULL,
    duration_ns bigint NOT NULL,
    op text NOT NULL,
    pid bigint NOT NULL,
    tid bigint NOT NULL,
    program text,
    path text,
    kind text,
    "offset" bigint,
    size bigint,
    bytes bigint NOT NULL,
    errno int,
    flags text,
    estimated boolean NOT NULL,
    state text,
    predicted_ns bigint,
    low_ns bigint,
    high_ns bigint,
    dirty bigint,
    cause text,
    call_ns bigint,
    stream_ns bigint,
    copy_ns bigint,
    large_folio_ns bigint,
    new_pages_ns bigint,
    freed_pages_ns bigint,
    cold_memory_ns bigint,
    partial_page_read_ns bigint,
    read_ns bigint,
    copy_up_ns bigint,
    flusher_beside_ns bigint,
    throttle_ns bigint,
    journal_ns bigint,
    queue_ns bigint,
    transfer_ns bigint,
    seek_ns bigint,
    device_flush_ns bigint,
    network_ns bigint,
    lock_ns bigint,
    preempted_ns bigint,
    discard_ns bigint,
    unexpected_ns bigint,
    predicted_by_kernel_ns bigint,
    predicted_by_cawl_ns bigint,
    predicted_by_naive_ns bigint,
    stack text,
    PRIMARY KEY (run, call)
);

-- Files of sums by minute that a daemon (`cawld --sums-to`) made and that were delivered. Numbers of a daemon without
-- a gap: nothing is missing.
CREATE TABLE cawl_sum_files (
    node text NOT NULL,
    daemon_start text NOT NULL,
    file bigint NOT NULL,
    rows bigint NOT NULL,
    rows_written bigint NOT NULL,
    rows_dropped bigint NOT NULL,
    rows_lost_before bigint,
    delivered_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node, daemon_start, file)
);

-- Their rows: by minute, process, file and cause.
CREATE TABLE cawl_sums (
    node text NOT NULL,
    daemon_start text NOT NULL,
    file bigint NOT NULL,
    row bigint NOT NULL,
    minute timestamptz NOT NULL,
    pid bigint NOT NULL,
    program text,
    path text,
    cause text NOT NULL,
    calls bigint NOT NULL,
    bytes bigint NOT NULL,
    ns bigint NOT NULL,
    PRIMARY KEY (node, daemon_start, file, row)
);
CREATE INDEX cawl_sums_minute ON cawl_sums (minute);
