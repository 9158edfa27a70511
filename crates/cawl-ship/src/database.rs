//! PostgreSQL: the connection, and the schema with its version.

use std::time::Duration;

use anyhow::{Context, ensure};
use postgres::{Client, Config, NoTls, Transaction};

/// Version of [`SCHEMA`], which `cawl_schema` has.
const VERSION: i32 = 1;
const SCHEMA: &str = include_str!("schema.sql");
/// Held while the schema is made: any number, of all that make it.
const LOCK: i64 = 0x6361_776c;

/// Connects, and makes the schema if there is none.
pub fn connect(url: &str) -> anyhow::Result<Client> {
    let mut config: Config = url.parse().context("the address of the database cannot be read")?;
    if config.get_password().is_none()
        && let Ok(password) = std::env::var("PGPASSWORD")
    {
        config.password(password);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(10));
    }
    config.application_name("cawl-ship").keepalives_idle(Duration::from_secs(30));
    let mut client = config.connect(NoTls).context("cannot connect to the database")?;
    let mut transaction = client.transaction()?;
    schema(&mut transaction).context("cannot make the tables")?;
    transaction.commit()?;
    Ok(client)
}

fn schema(transaction: &mut Transaction<'_>) -> anyhow::Result<()> {
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    let has_one = transaction.query_one("SELECT to_regclass('cawl_schema') IS NOT NULL", &[])?;
    if !has_one.get::<_, bool>(0) {
        transaction.batch_execute("CREATE TABLE cawl_schema (version int NOT NULL)")?;
        transaction.execute("INSERT INTO cawl_schema VALUES ($1)", &[&VERSION])?;
        return Ok(transaction.batch_execute(SCHEMA)?);
    }
    let version: i32 = transaction.query_one("SELECT max(version) FROM cawl_schema", &[])?.get(0);
    ensure!(
        version == VERSION,
        "they have version {version} of the schema, this program version {VERSION}: use a cawl-ship of that version, \
         or another schema of the database (?options=-c%20search_path%3DNAME)"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_columns_of_a_table_of_calls_are_there() {
        let models = ["", "kernel", "cawl", "naive"];
        let table = &SCHEMA[SCHEMA.find("CREATE TABLE cawl_calls").expect("its table")..];
        let table = &table[..table.find(");").expect("its end")];
        let names = |line: &str| line.split_whitespace().next().map(|name| name.replace('"', ""));
        let there: Vec<_> =
            table.lines().skip(2).filter_map(names).filter(|name| name != "PRIMARY").collect();
        let wanted: Vec<_> =
            cawl_table::Columns::new(&models).iter().map(|column| column.name.clone()).collect();
        assert_eq!(there, wanted);
    }
}
