//! Files that the daemon makes for others: tables of calls, sums by minute, metrics and spans.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use cawl_core::{Bytes, quantity};
use clap::Args;
use hyper::Uri;

use super::shipper;
use crate::Node;
use crate::calls_to::{CallsOptions, Rule};
use crate::otlp_to::OtlpOptions;
use crate::sums_to::SumsOptions;

/// A bound below this would hold no file.
const MIN_ROOM: u64 = 1 << 20;

/// Tables of calls, sums by minute, metrics and spans.
#[derive(Args)]
pub struct OutputArgs {
    /// Write calls as Parquet files into a folder, or to s3://BUCKET/PREFIX
    ///
    /// Below it are partitions, node=…/date=…/hour=…; s3:// takes `cawl-ship` (docs/guide/FLEET.md).
    #[arg(long, value_name = "DIR|URL", value_parser = calls_target)]
    calls_to: Option<Target>,
    /// Which calls: all, or `slower than SPAN`, `around anomalies`, `1 in N`, with ` or ` between; the column
    /// `weight` tells how many calls a row stands for. Without `1 in`, 1 in 1000 of the others is taken, too;
    /// `only` before the rule takes none
    #[arg(long, value_name = "RULE", default_value = "all", requires = "calls_to")]
    calls_of: Rule,
    /// A file is closed when it has this size, or is so old
    #[arg(long, value_name = "SIZE,SPAN", default_value = "64M,5m", value_parser = every, requires = "calls_to")]
    calls_every: (u64, Duration),
    /// Bytes of this node's files at most; what comes when they are reached is dropped and counted
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = room, requires = "calls_to")]
    calls_room: u64,
    /// Deliver sums by minute, process, file and cause to a database, postgres://…
    ///
    /// Takes `cawl-ship` (docs/guide/FLEET.md).
    #[arg(long, value_name = "URL", value_parser = sums_target)]
    sums_to: Option<Target>,
    /// Bytes that sums take at most while the database is away
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = room, requires = "sums_to")]
    sums_room: u64,
    /// Deliver metrics, and slow calls as traces, to OpenTelemetry, http://HOST:4318
    ///
    /// Or https://…: a collector, or what else takes OTLP over HTTP. Takes `cawl-ship` (docs/guide/WATCH.md).
    #[arg(long, value_name = "URL", value_parser = otlp_target)]
    otlp: Option<Target>,
    /// Interval of metrics and traces
    #[arg(long, value_name = "SPAN", default_value = "1m", value_parser = interval, requires = "otlp")]
    otlp_every: Duration,
}

/// What the engine is to write.
type Outputs = (Option<CallsOptions>, Option<SumsOptions>, Option<OtlpOptions>);

/// Where files go.
#[derive(Clone, Debug)]
pub struct Target {
    /// As it was given.
    pub address: String,
}

impl Target {
    /// It is brought there by `cawl-ship`.
    fn is_remote(&self) -> bool {
        self.address.contains("://")
    }

    /// Without a password.
    fn shown(&self) -> String {
        let Some((scheme, rest)) = self.address.split_once("://") else { return self.address.clone() };
        // A password may have any letter, so that only the last @ tells where it ends.
        let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
        let user = user.split([':', '/', '?', '@', '#']).next().unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        format!("{scheme}://{user}{at}{}", rest.split('?').next().unwrap_or_default())
    }
}

impl OutputArgs {
    /// What the engine is to write; starts who takes the files away.
    pub fn options(
        self,
        node: &Node,
        profile: &str,
        state: impl Fn(&str) -> anyhow::Result<PathBuf>,
    ) -> anyhow::Result<Outputs> {
        let OutputArgs { calls_to, calls_of, calls_every, calls_room, sums_to, sums_room, otlp, otlp_every } =
            self;
        let folder = |to: &Target, name: &str| {
            let folder = if to.is_remote() { state(name)? } else { PathBuf::from(&to.address) };
            std::fs::create_dir_all(&folder).with_context(|| {
                format!("the folder {} cannot be used; name another one", folder.display())
            })?;
            if to.is_remote() {
                shipper::start(&folder, &to.address)?;
            }
            anyhow::Ok(folder)
        };
        let calls = calls_to.map(|to| {
            let labels = node.labels.iter().map(|(key, value)| format!("{key}={value}"));
            let mut facts = vec![
                ("cawl_version", env!("CARGO_PKG_VERSION").to_owned()),
                ("mode", "lockstep".to_owned()),
                ("profile", profile.to_owned()),
                ("labels", labels.collect::<Vec<_>>().join(",")),
            ];
            facts.retain(|(_, value)| !value.is_empty());
            let (every, room, node) = (calls_every, calls_room, node.name.clone());
            let folder = folder(&to, "calls")?;
            anyhow::Ok(CallsOptions { to: to.shown(), folder, rule: calls_of, every, room, node, facts })
        });
        let sums = sums_to.map(|to| {
            let (room, node) = (sums_room, node.name.clone());
            anyhow::Ok(SumsOptions { to: to.shown(), folder: folder(&to, "sums")?, room, node })
        });
        let otlp = otlp.map(|to| {
            let (every, node, labels) = (otlp_every, node.name.clone(), node.labels.clone().into_iter());
            let (folder, labels) = (folder(&to, "otlp")?, labels.collect());
            anyhow::Ok(OtlpOptions { to: to.shown(), folder, every, node, labels })
        });
        Ok((calls.transpose()?, sums.transpose()?, otlp.transpose()?))
    }
}

fn calls_target(text: &str) -> Result<Target, String> {
    match text.split_once("://") {
        Some(("s3", bucket)) if !bucket.is_empty() && !bucket.starts_with('/') => {}
        Some(_) => return Err("give a folder, or s3://BUCKET/PREFIX".to_owned()),
        None if text.is_empty() => return Err("give a folder, or s3://BUCKET/PREFIX".to_owned()),
        None => {}
    }
    Ok(Target { address: text.to_owned() })
}

fn sums_target(text: &str) -> Result<Target, String> {
    match text.split_once("://") {
        Some(("postgres" | "postgresql", rest)) if has_host(rest) => Ok(Target { address: text.to_owned() }),
        _ => Err("give a database, postgres://USER@HOST/DATABASE".to_owned()),
    }
}

/// True if an address of libpq names a host, which may be among the parameters.
fn has_host(rest: &str) -> bool {
    let server = rest.split(['/', '?']).next().unwrap_or_default();
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let names_it = |pair: &str| pair.starts_with("host=") || pair.starts_with("hostaddr=");
    !server.is_empty() && !server.ends_with('@') || query.split('&').any(names_it)
}

fn otlp_target(text: &str) -> Result<Target, String> {
    let has_server = |uri: &Uri| {
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_bare = |host: &str| uri.authority().is_some_and(|all| all == host);
        let has_port = uri.port_u16().is_some_and(|port| port > 0);
        is_http && uri.host().is_some_and(|host| !host.is_empty() && (has_port || is_bare(host)))
    };
    match text.parse() {
        Ok(uri) if has_server(&uri) && !text.contains(['?', '#', '@']) => {
            Ok(Target { address: text.to_owned() })
        }
        _ => {
            let token = "a token goes into the variable OTEL_EXPORTER_OTLP_HEADERS";
            Err(format!("give a collector, http://HOST:4318 or https://HOST:4318; {token}"))
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match quantity::span_with_unit(text)? {
        seconds if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give a time between 100ms and 1h".to_owned()),
    }
}

fn every(text: &str) -> Result<(u64, Duration), String> {
    let (bytes, span) = text.split_once(',').ok_or("give a size and a time, like 64M,5m")?;
    let (bytes, seconds) = (quantity::size_above_zero(bytes)?, quantity::span_with_unit(span)?);
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err("give a time between 100ms and 1d".to_owned());
    }
    Ok((bytes, Duration::from_secs_f64(seconds)))
}

fn room(text: &str) -> Result<u64, String> {
    match quantity::size(text)? {
        bytes if bytes >= MIN_ROOM => Ok(bytes),
        _ => Err(format!("give at least {}", Bytes(MIN_ROOM))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let shown = |address: &str| Target { address: address.to_owned() }.shown();
        for password in ["secret", "a/secret", "a?secret", "p@secret", "a#secret", "a:secret"] {
            assert_eq!(shown(&format!("postgres://me:{password}@h:5/d?password=x")), "postgres://me@h:5/d");
        }
        assert_eq!(shown("postgres://h/d?sslmode=require"), "postgres://h/d");
        assert_eq!(
            (shown("s3://b/p"), shown("/var/calls")),
            ("s3://b/p".to_owned(), "/var/calls".to_owned())
        );
    }

    #[test]
    fn addresses_have_a_host_and_a_port_that_can_be() {
        for url in ["http://h", "https://h:4318/otlp", "http://[::1]:4318", "http://127.0.0.1:65535"] {
            assert!(otlp_target(url).is_ok(), "{url}");
        }
        for url in ["http://h:99999", "http://h:0", "http://h:x", "http://:4318", "http:///v1", "h:4318"] {
            assert!(otlp_target(url).is_err(), "{url}");
        }
        for url in ["postgres://h", "postgresql://u:p@h:5432/d", "postgres:///d?host=%2Frun"] {
            assert!(sums_target(url).is_ok(), "{url}");
        }
        for url in ["postgres://", "postgres:///d", "postgres://u@", "postgres://u@/d", "mysql://h"] {
            assert!(sums_target(url).is_err(), "{url}");
        }
    }
}
