//! A run: the csv of `cawl-cli export` on standard input, to the tables `cawl_runs` and `cawl_calls`.

use std::io::{BufRead, Write};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::database::connect;
use crate::tell;

/// Begins the last line, which has the run's facts: without it the table is not complete.
const END: &[u8] = b"#end ";

/// The facts of a run.
#[derive(Deserialize)]
struct Facts {
    calls: i64,
    host: Option<String>,
    kernel: Option<String>,
    cpus: Option<String>,
    memory_bytes: Option<String>,
    page_bytes: Option<String>,
    traced_at_ns: Option<String>,
    traced_at_unix_s: Option<String>,
    model: String,
    mode: String,
    learn: String,
    profile: String,
    cawl_version: String,
    notes: Option<String>,
}

/// Puts a run in the place of the one with that name, if there is one: all of it, or nothing.
pub fn copy(url: &str, run: &str, mut csv: impl BufRead) -> anyhow::Result<()> {
    let mut header = String::new();
    csv.read_line(&mut header).context("cannot read the table")?;
    let columns: Vec<String> = header.trim_end().split(',').map(|name| format!("\"{name}\"")).collect();
    ensure!(
        header.starts_with("call,start_ns,") && !header.contains('"'),
        "standard input has no table of calls"
    );
    let mut client = connect(&url.parse()?)?;
    let mut transaction = client.transaction()?;
    // One at a time for each run.
    transaction.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[&run])?;
    transaction.execute("DELETE FROM cawl_calls WHERE run = $1", &[&run])?;
    transaction.execute("DELETE FROM cawl_runs WHERE run = $1", &[&run])?;
    // What the column `run` has by default.
    transaction.execute("SELECT set_config('cawl.run', $1, true)", &[&run])?;
    let copy = format!("COPY cawl_calls ({}) FROM STDIN (FORMAT csv)", columns.join(","));
    let mut to = transaction.copy_in(&copy)?;
    let mut line = Vec::new();
    let facts = loop {
        line.clear();
        if csv.read_until(b'\n', &mut line).context("cannot read the table")? == 0 {
            bail!("the table ended too early; nothing of it was kept");
        }
        // A text may have lines that begin so, but not the last one of all.
        if line.starts_with(END) && csv.fill_buf().context("cannot read the table")?.is_empty() {
            let facts = serde_json::from_slice::<Facts>(&line[END.len()..]);
            break facts.context("the table ended too early; nothing of it was kept")?;
        }
        to.write_all(&line)?;
    };
    let copied = to.finish()? as i64;
    ensure!(
        copied == facts.calls,
        "{copied} rows came and {} were to come; nothing of it was kept",
        facts.calls
    );
    transaction.execute(
        "INSERT INTO cawl_runs (run, host, kernel, cpus, memory_bytes, page_bytes, traced_at, traced_at_ns, model, mode,
         learn, profile, cawl_version, calls, notes) VALUES ($1, $2, $3, $4::text::int, $5::text::bigint,
         $6::text::bigint, to_timestamp($7::text::float8), $8::text::bigint, $9, $10, $11::text::boolean, $12, $13, $14,
         $15)",
        &[
            &run,
            &facts.host,
            &facts.kernel,
            &facts.cpus,
            &facts.memory_bytes,
            &facts.page_bytes,
            &facts.traced_at_unix_s,
            &facts.traced_at_ns,
            &facts.model,
            &facts.mode,
            &facts.learn,
            &facts.profile,
            &facts.cawl_version,
            &facts.calls,
            &facts.notes,
        ],
    )?;
    transaction.commit()?;
    if facts.calls == 0 {
        tell(&format!("the run {run} has no calls: its trace has none"));
    }
    Ok(())
}
