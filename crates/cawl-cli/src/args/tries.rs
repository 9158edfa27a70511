//! What `run --try` changes.

use std::fmt;
use std::str::FromStr;

use cawl_core::quantity::size_above_zero;

/// A change of the program's calls, made while it runs. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// Streams that the program opens for writing have a buffer of this size.
    Buffer(u32),
    /// sync_file_range begins to write back whenever so much was written to a file.
    Pace(u64),
    /// posix_fadvise drops what was written before the latest part.
    Dontneed,
    /// fsync and fdatasync return at once.
    NoSync,
    /// fallocate reserves space before a growing file.
    Preallocate,
}

/// Largest buffer of a stream, in bytes.
const BUFFER_MOST: u64 = 1 << 30;

impl FromStr for Try {
    type Err = String;

    fn from_str(text: &str) -> Result<Try, String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("buffer", Some(size)) => {
                let bytes = size_above_zero(size)?;
                let small = u32::try_from(bytes).ok().filter(|bytes| u64::from(*bytes) <= BUFFER_MOST);
                small.map(Try::Buffer).ok_or_else(|| "give a buffer of at most 1G".to_owned())
            }
            ("pace", Some(size)) => Ok(Try::Pace(size_above_zero(size)?)),
            ("dontneed", None) => Ok(Try::Dontneed),
            ("fsync", Some("none")) => Ok(Try::NoSync),
            ("preallocate", None) => Ok(Try::Preallocate),
            _ => Err("give buffer=SIZE, pace=SIZE, dontneed, fsync=none or preallocate".to_owned()),
        }
    }
}

/// As the tracer reads it in CAWL_TRY.
impl fmt::Display for Try {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Try::Buffer(bytes) => write!(out, "buffer={bytes}"),
            Try::Pace(bytes) => write!(out, "pace={bytes}"),
            Try::Dontneed => out.write_str("dontneed"),
            Try::NoSync => out.write_str("fsync=none"),
            Try::Preallocate => out.write_str("preallocate"),
        }
    }
}

impl Try {
    /// As people read it.
    pub fn told(self) -> String {
        let size = |bytes: u64| {
            let units = [(30, 'G'), (20, 'M'), (10, 'K')];
            let unit = units.into_iter().find(|(power, _)| bytes.is_multiple_of(1 << power));
            unit.map_or_else(|| bytes.to_string(), |(power, letter)| format!("{}{letter}", bytes >> power))
        };
        match self {
            Try::Buffer(bytes) => format!("buffer={}", size(bytes.into())),
            Try::Pace(bytes) => format!("pace={}", size(bytes)),
            _ => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_told() {
        for (given, told, sent) in [
            ("buffer=1M", "buffer=1M", "buffer=1048576"),
            ("pace=1.5K", "pace=1536", "pace=1536"),
            ("pace=8MiB", "pace=8M", "pace=8388608"),
            ("dontneed", "dontneed", "dontneed"),
            ("fsync=none", "fsync=none", "fsync=none"),
            ("preallocate", "preallocate", "preallocate"),
        ] {
            let read: Try = given.parse().expect(given);
            assert_eq!((read.told(), read.to_string()), (told.to_owned(), sent.to_owned()));
        }
        for wrong in
            ["", "buffer", "buffer=0", "buffer=2G", "pace=x", "fsync", "fsync=end", "dontneed=1", "sync"]
        {
            assert!(wrong.parse::<Try>().is_err(), "{wrong}");
        }
    }
}
