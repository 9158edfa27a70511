//! Arguments.

use std::path::PathBuf;

use clap::Parser;
use url::Url;

/// The variable that has the target where the arguments have none: a list of processes shows arguments.
const TO: &str = "CAWL_SHIP_TO";

/// Brings what cawl writes to object storage, databases and collectors
///
/// cawl-ship DIR s3://BUCKET/PREFIX uploads the tables of `cawld --calls-to` under their path in DIR;
/// cawl-ship DIR postgres://… delivers the sums of `cawld --sums-to`; cawl-ship DIR http://HOST:4318 (or
/// https://…) delivers the metrics and spans of `cawld --otlp`. Each file is removed when it was taken; one
/// that is refused is set aside in DIR/.cawl-refused, with the reason. `cawld` and `cawl-cli export --to
/// postgres://…` start this program themselves.
///
/// Credentials, region and endpoint of S3 are those of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
/// AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL; a password may be in PGPASSWORD; headers for a
/// collector are those of OTEL_EXPORTER_OTLP_HEADERS. Certificates are checked by those of the system, or of
/// SSL_CERT_FILE; for PostgreSQL with ?sslmode=verify-full, and sslrootcert=FILE. Exit codes: 1 when
/// something was not delivered, 2 for wrong usage.
#[derive(Parser)]
#[command(name = "cawl-ship", version, max_term_width = 80)]
pub struct Args {
    /// The folder with the files; - is the csv of a run on standard input, as `cawl-cli export` writes it
    source: PathBuf,
    /// s3://BUCKET/PREFIX, postgres://USER@HOST/DATABASE or http://HOST:4318 [default: the variable
    /// CAWL_SHIP_TO]
    target: Option<String>,
    /// Go on with new files until standard input ends, then deliver the rest, for 10 s at most
    #[arg(long)]
    pub follow: bool,
    /// Name of the run on standard input
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
}

/// What is delivered.
pub enum Source {
    /// The files in a folder.
    Folder(PathBuf),
    /// The csv of a run with this name, on standard input.
    Run(String),
}

/// Where to.
pub enum Target {
    /// `s3://BUCKET/PREFIX`.
    Bucket(String),
    /// `postgres://…`.
    Database(String),
    /// `http://…` or `https://…`.
    Collector(String),
}

impl Args {
    /// What to do; an error for wrong usage.
    pub fn checked(self) -> Result<(Source, Target, Args), String> {
        let target = self.target.clone().or_else(|| std::env::var(TO).ok()).unwrap_or_default();
        let target = match target.split_once("://") {
            Some(("s3", bucket)) if !bucket.is_empty() && !bucket.starts_with('/') => Target::Bucket(target),
            Some(("postgres" | "postgresql", _)) => Target::Database(target),
            // The client of HTTP panics where this one finds no address.
            Some(("http" | "https", rest))
                if !rest.contains('@') && Url::parse(&target).is_ok_and(|url| url.port() != Some(0)) =>
            {
                Target::Collector(target)
            }
            _ => {
                let forms = "s3://BUCKET/PREFIX, postgres://USER@HOST/DATABASE or http://HOST:4318";
                return Err(format!("name where to: {forms}"));
            }
        };
        let is_run = self.source.as_os_str() == "-";
        let source = match (is_run, &self.run, &target) {
            (true, Some(run), Target::Database(_)) if !self.follow => Source::Run(run.clone()),
            (true, ..) => {
                return Err(
                    "a run on standard input needs --run and a database; see `cawl-cli export`".to_owned()
                );
            }
            (false, None, _) => Source::Folder(self.source.clone()),
            (false, Some(_), _) => {
                return Err("--run is for a run on standard input: give - as the source".to_owned());
            }
        };
        Ok((source, target, self))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_manual_page_is_that_of_the_program() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/man/cawl-ship.1");
        let mut page = Vec::new();
        clap_mangen::Man::new(cawl_console::with_synopsis(Args::command()))
            .render(&mut page)
            .expect("memory");
        if std::env::var_os("CAWL_WRITE_PAGES").is_some() {
            std::fs::write(path, &page).expect("a writable page");
        }
        let kept = std::fs::read(path).expect("the page");
        assert!(kept == page, "not the same any more; do: CAWL_WRITE_PAGES=1 cargo test -p cawl-ship manual");
    }

    #[test]
    fn addresses_have_a_host_and_a_port_that_can_be() {
        let is_taken = |url| Args::parse_from(["cawl-ship", "dir", url]).checked().is_ok();
        assert!(is_taken("http://localhost:4318") && is_taken("https://[::1]/base"));
        for url in ["http://h:99999", "http://h:0", "http://h:x", "http://", "http://1.2.3.999", "http://u@h"]
        {
            assert!(!is_taken(url), "{url}");
        }
    }

    #[test]
    fn short_help_fits_on_a_screen() {
        let help = Args::command().render_help().to_string();
        assert!(help.lines().count() <= 38 && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
