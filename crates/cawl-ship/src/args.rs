//! Arguments.

use std::path::PathBuf;

use clap::Parser;

/// The variable that has the target where the arguments have none: a list of processes shows arguments.
const TO: &str = "CAWL_SHIP_TO";

/// Brings what cawl writes to object storage and databases
///
/// cawl-ship DIR s3://BUCKET/PREFIX uploads the tables of `cawld --calls-to` under their path in DIR;
/// cawl-ship DIR postgres://… delivers the sums of `cawld --sums-to`. Each file is removed when it was taken.
/// `cawld` and `cawl-cli export --to postgres://…` start this program themselves.
///
/// Credentials, region and endpoint of S3 are those of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
/// AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL; a password may be in PGPASSWORD. Exit codes: 1 when
/// something was not delivered, 2 for wrong usage.
#[derive(Parser)]
#[command(name = "cawl-ship", version, max_term_width = 80)]
pub struct Args {
    /// The folder with the files; - is the csv of a run on standard input, as `cawl-cli export` writes it
    source: PathBuf,
    /// s3://BUCKET/PREFIX or postgres://USER@HOST/DATABASE [default: the variable CAWL_SHIP_TO]
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
}

impl Args {
    /// What to do; an error for wrong usage.
    pub fn checked(self) -> Result<(Source, Target, Args), String> {
        let target = self.target.clone().or_else(|| std::env::var(TO).ok()).unwrap_or_default();
        let target = match target.split_once("://") {
            Some(("s3", bucket)) if !bucket.is_empty() && !bucket.starts_with('/') => Target::Bucket(target),
            Some(("postgres" | "postgresql", _)) => Target::Database(target),
            _ => return Err("name where to: s3://BUCKET/PREFIX or postgres://USER@HOST/DATABASE".to_owned()),
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
