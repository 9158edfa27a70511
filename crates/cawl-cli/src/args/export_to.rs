//! Where an export goes: a format, or a database.

use std::ffi::OsStr;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, ValueEnum};

use super::ExportFormat;

/// Where an export goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportTo {
    /// To a file, or stdout.
    Format(ExportFormat),
    /// To the database of this address.
    Database(String),
}

impl ExportTo {
    /// A database gets a csv.
    pub fn format(&self) -> ExportFormat {
        match self {
            ExportTo::Format(format) => *format,
            ExportTo::Database(_) => ExportFormat::Csv,
        }
    }
}

/// Reads an [`ExportTo`].
#[derive(Clone)]
pub struct ExportToParser;

impl TypedValueParser for ExportToParser {
    type Value = ExportTo;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<ExportTo, clap::Error> {
        match value
            .to_str()
            .filter(|text| text.starts_with("postgres://") || text.starts_with("postgresql://"))
        {
            Some(address) => Ok(ExportTo::Database(address.to_owned())),
            None => EnumValueParser::<ExportFormat>::new().parse_ref(cmd, arg, value).map(ExportTo::Format),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ExportFormat::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}
