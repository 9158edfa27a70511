//! Traces of runs: read, and copied to be kept.

use std::path::Path;

use anyhow::Context;
use cawl_core::{HostProfile, Record};
use cawl_host::trace::{TraceFile, TraceReader, WhenFull};

/// The records of a trace, and the profile among them.
pub fn recorded(trace: &Path) -> anyhow::Result<(Vec<Record>, HostProfile)> {
    let records = TraceReader::open(trace)?.collect::<Result<Vec<_>, _>>()?;
    let profile = records.iter().find_map(|record| match record {
        Record::Profile(profile) => Some(HostProfile::clone(profile)),
        _ => None,
    });
    Ok((records, profile.context("the trace has no profile")?))
}

/// A copy of a trace with what the analysis needs, and without names of this machine; its profile is changed.
pub fn keep(trace: &Path, copy: &Path, change: impl Fn(&mut HostProfile)) -> anyhow::Result<()> {
    kept(trace, copy, |record| match record {
        Record::Profile(mut profile) => {
            change(&mut profile);
            Some(Record::Profile(profile))
        }
        Record::Host(_) | Record::Note(_) | Record::Session(_) | Record::File(_) | Record::End(_) => None,
        Record::Outcome(_) => None,
        needed => Some(needed),
    })
}

/// A copy of a trace as of [`keep`], with the last part of each file's name, and with the filesystems.
pub fn keep_names(trace: &Path, copy: &Path) -> anyhow::Result<()> {
    kept(trace, copy, |record| match record {
        Record::File(mut file) => {
            file.path = super::name_of(Path::new(&file.path));
            Some(Record::File(file))
        }
        Record::Host(mut host) => {
            host.host.clear();
            Some(Record::Host(host))
        }
        Record::Note(_) | Record::Session(_) | Record::End(_) | Record::Outcome(_) => None,
        needed => Some(needed),
    })
}

fn kept(trace: &Path, copy: &Path, keep: impl Fn(Record) -> Option<Record>) -> anyhow::Result<()> {
    let mut reader = TraceReader::open(trace)?;
    let mut kept = TraceFile::create(copy, WhenFull::Wait)?;
    while let Some(record) = reader.next_record()? {
        if let Some(record) = keep(record) {
            kept.push(&record);
        }
    }
    kept.finish().map_or(Ok(()), |failure| Err(anyhow::anyhow!(failure)))
}
