//! PostgreSQL: the connection, and the schema with its version.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use postgres::config::Host;
use postgres::{Client, Config, Transaction};

use crate::tls::Tls;

/// Version of [`SCHEMA`], which `cawl_schema` has.
const VERSION: i32 = 1;
const SCHEMA: &str = include_str!("schema.sql");
/// Held while the schema is made: any number, of all that make it.
const LOCK: i64 = 0x6361_776c;

/// Where a database is, and how it is reached.
pub struct Address {
    config: Config,
    tls: Tls,
}

impl FromStr for Address {
    type Err = anyhow::Error;

    /// An address of libpq, whose parameters `sslmode=verify-full` and `sslrootcert=FILE` the library does
    /// not know.
    fn from_str(url: &str) -> anyhow::Result<Address> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", path)) => {
                    let path = percent_encoding::percent_decode_str(path).decode_utf8()?;
                    roots =
                        Some(PathBuf::from(path.into_owned())).filter(|path| path.as_os_str() != "system");
                }
                _ => rest.push(pair.to_owned()),
            }
        }
        let (known, is_checked) = match mode {
            None => ("prefer", false),
            Some("verify-full") => ("require", true),
            Some(known @ ("disable" | "prefer" | "require")) => (known, false),
            Some(other) => bail!("sslmode is to be disable, prefer, require or verify-full, not {other}"),
        };
        ensure!(
            roots.is_none() || is_checked,
            "sslrootcert needs sslmode=verify-full: nothing else is checked"
        );
        rest.push(format!("sslmode={known}"));
        let mut config: Config = format!("{base}?{}", rest.join("&"))
            .parse()
            .context("the address of the database cannot be read")?;
        ensure!(
            !config.get_hosts().is_empty(),
            "the address of the database has no host; give postgres://USER@HOST/DATABASE"
        );
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        config.application_name("cawl-ship").keepalives_idle(Duration::from_secs(30));
        let tls = match (is_checked, roots) {
            (false, _) => Tls::Unchecked,
            (true, None) => Tls::System,
            (true, Some(file)) => Tls::Of(file),
        };
        Ok(Address { config, tls })
    }
}

impl Address {
    /// Hosts and ports, without user and password.
    fn servers(&self) -> String {
        let ports = self.config.get_ports();
        let server = |(at, host): (usize, &Host)| {
            let port = ports.get(at).or(ports.first()).unwrap_or(&5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}, port {port}", folder.display()),
            }
        };
        self.config.get_hosts().iter().enumerate().map(server).collect::<Vec<_>>().join(" or ")
    }
}

/// Connects, and makes the schema if there is none.
pub fn connect(address: &Address) -> anyhow::Result<Client> {
    let tls = address.tls.connector()?;
    let cannot = || {
        let remedy = "is it there, and does it let this user in?";
        format!("cannot connect to the database at {}; {remedy}", address.servers())
    };
    let mut client = address.config.connect(tls).with_context(cannot)?;
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
    fn who_does_not_answer_is_named_without_the_password() {
        // Nothing listens there.
        let address: Address = "postgres://me:secret@127.0.0.1:1/d".parse().expect("an address");
        let why = format!("{:#}", connect(&address).err().expect("nobody"));
        assert!(why.contains("database at 127.0.0.1:1;") && why.contains("refused"), "{why}");
        assert!(!why.contains("secret"), "{why}");
        assert!("postgres://".parse::<Address>().is_err());
    }

    #[test]
    fn all_columns_of_a_table_of_calls_are_there() {
        let models = ["", "kernel", "cawl", "naive"];
        let table = &SCHEMA[SCHEMA.find("CREATE TABLE cawl_calls").expect("its table")..];
        let table = &table[..table.find(");").expect("its end")];
        let names = |line: &str| line.split_whitespace().next().map(|name| name.replace('"', ""));
        let there: Vec<_> =
            table.lines().skip(2).filter_map(names).filter(|name| name != "PRIMARY").collect();
        let wanted: Vec<_> =
            cawl_export::Columns::new(&models).iter().map(|column| column.name.clone()).collect();
        assert_eq!(there, wanted);
    }
}
