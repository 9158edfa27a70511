//! Where an export goes: a format, or a database.

use std::ffi::OsStr;

use cawl_export::{FORMATS, Format};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

/// Where an export goes: to a file or stdout, or to the database of this address, which gets a csv.
#[derive(Clone)]
pub struct ExportTo {
    pub format: &'static Format,
    pub database: Option<String>,
}

/// Reads an [`ExportTo`].
#[derive(Clone)]
pub struct ExportToParser;

impl TypedValueParser for ExportToParser {
    type Value = ExportTo;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<ExportTo, Error> {
        let is_address = |text: &&str| text.starts_with("postgres://") || text.starts_with("postgresql://");
        let database = value.to_str().filter(is_address).map(str::to_owned);
        let name = match database {
            Some(_) => "csv".to_owned(),
            None => PossibleValuesParser::from(FORMATS.iter().map(named)).parse_ref(cmd, arg, value)?,
        };
        let format = FORMATS.iter().find(|format| named(format).matches(&name, false));
        let format = format.ok_or_else(|| Error::new(ErrorKind::InvalidValue).with_cmd(cmd))?;
        Ok(ExportTo { format, database })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(FORMATS.iter().map(named)))
    }
}

fn named(format: &Format) -> PossibleValue {
    let value = PossibleValue::new(format.name).help(format.what);
    // As `import` calls it.
    if format.name == "darshan" { value.alias("darshan-dxt") } else { value }
}
