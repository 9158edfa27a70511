//! `cawl-ship` brings what cawl writes to where it belongs: tables of calls to object storage, sums by minute
//! and runs to PostgreSQL, metrics and spans to a collector of OpenTelemetry. It is a program of its own, so
//! that cawl-cli and cawld have none of these libraries.
//!
//! The law of this crate: **what was delivered once may be delivered again.** A file is removed after its
//! delivery, and a second delivery of it changes nothing.
#![forbid(unsafe_code)]

mod args;
mod aside;
mod database;
mod folder;
mod otlp;
mod run;
mod s3;
mod sums;
mod tls;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Source, Target};

fn main() -> ExitCode {
    let (source, target, args) = match Args::parse().checked() {
        Ok(checked) => checked,
        Err(why) => {
            tell(&why);
            return ExitCode::from(2);
        }
    };
    let done = match (source, target) {
        (Source::Folder(folder), Target::Bucket(url)) => s3::Bucket::new(&url)
            .and_then(|mut bucket| folder::ship(&folder, ".parquet", args.follow, &mut bucket)),
        (Source::Folder(folder), Target::Database(url)) => {
            sums::Sums::new(&url).and_then(|mut sums| folder::ship(&folder, ".csv", args.follow, &mut sums))
        }
        (Source::Folder(folder), Target::Collector(url)) => otlp::Collector::new(&url)
            .and_then(|mut collector| folder::ship(&folder, ".json", args.follow, &mut collector)),
        (Source::Run(run), Target::Database(url)) => run::copy(&url, &run, std::io::stdin().lock()),
        // Refused by `checked`.
        (Source::Run(_), Target::Bucket(_) | Target::Collector(_)) => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// A line to stderr; not eprintln, which panics when that is closed or full.
fn tell(text: &str) {
    drop(std::io::stderr().write_all(format!("cawl-ship: {text}\n").as_bytes()));
}
