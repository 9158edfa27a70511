//! Sums by minute, from files to rows of a database.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, ensure};
use postgres::Client;
use postgres::error::DbError;
use serde::Deserialize;

use crate::database::{Address, connect};
use crate::folder::{Deliver, Failure};

/// The database, and the connection while there is one.
pub struct Sums {
    address: Address,
    client: Option<Client>,
}

/// The first line of a file.
#[derive(Deserialize)]
struct Facts {
    node: String,
    daemon_start: String,
    sequence: String,
    rows: String,
    rows_written: String,
    rows_dropped: String,
    rows_lost_before: Option<String>,
}

impl Sums {
    /// Of a database, which may be away. An address that makes no sense is an error.
    pub fn new(url: &str) -> anyhow::Result<Sums> {
        Ok(Sums { address: url.parse()?, client: None })
    }
}

impl Deliver for Sums {
    /// All rows of a file, or none; none if they are there.
    fn deliver(&mut self, file: &Path, _key: &str) -> Result<u64, Failure> {
        let mut rows = 0;
        let mut client = match self.client.take() {
            Some(client) if !client.is_closed() => client,
            _ => connect(&self.address)?,
        };
        let copied = copy(&mut client, file, &mut rows);
        copied.with_context(|| format!("cannot deliver {}", file.display())).map_err(|error| {
            if is_of_the_file(&error) { Failure::Refused(error, rows) } else { error.into() }
        })?;
        self.client = Some(client);
        Ok(0)
    }
}

/// True if another attempt would not help: what the file has is refused, not who brings it.
fn is_of_the_file(error: &anyhow::Error) -> bool {
    let server = error.chain().find_map(|cause| cause.downcast_ref::<DbError>());
    let is_other = error.chain().any(|cause| cause.is::<postgres::Error>() || cause.is::<io::Error>());
    server.map_or(!is_other, |error| {
        // Bad data, a constraint that does not hold, a column that is not there.
        let code = error.code().code();
        ["22", "23", "54"].iter().any(|class| code.starts_with(class)) || code == "42703"
    })
}

fn copy(client: &mut Client, file: &Path, told: &mut u64) -> anyhow::Result<()> {
    let mut source = BufReader::with_capacity(1 << 16, File::open(file)?);
    let (mut facts, mut header) = (String::new(), String::new());
    source.read_line(&mut facts)?;
    let facts: Facts = serde_json::from_str(&facts).context("its first line has no facts")?;
    source.read_line(&mut header)?;
    ensure!(header.starts_with("node,daemon_start,file,row,"), "it is no table of sums");
    let number = |text: &str| text.parse::<i64>().with_context(|| format!("`{text}` is no number"));
    let Facts { node, daemon_start, sequence, rows, rows_written, rows_dropped, rows_lost_before } = &facts;
    let (sequence, rows) = (number(sequence)?, number(rows)?);
    *told = rows.unsigned_abs();
    let (written, dropped) = (number(rows_written)?, number(rows_dropped)?);
    let lost = rows_lost_before.as_deref().map(number).transpose()?;
    let mut transaction = client.transaction()?;
    let is_new = transaction.execute(
        "INSERT INTO cawl_sum_files (node, daemon_start, file, rows, rows_written, rows_dropped, rows_lost_before)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        &[node, daemon_start, &sequence, &rows, &written, &dropped, &lost],
    )?;
    if is_new == 0 {
        return Ok(());
    }
    let copy = format!("COPY cawl_sums ({}) FROM STDIN (FORMAT csv)", header.trim_end());
    let mut to = transaction.copy_in(&copy)?;
    io::copy(&mut source, &mut to)?;
    let copied = to.finish()?;
    ensure!(copied == rows as u64, "it has {copied} rows and was to have {rows}");
    Ok(transaction.commit()?)
}
