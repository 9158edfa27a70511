//! What is wrong with a profile.

use super::PROFILE_SCHEMA;

/// Letters of a line of a file that an error shows.
const LONGEST: usize = 160;

/// Why a profile could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, or a field is missing, unknown or out of range.
    #[error("the profile cannot be read: {0}")]
    Syntax(String),
    /// Written by a later version.
    #[error("the profile has schema {0}, this program reads up to {PROFILE_SCHEMA}; use a newer cawl-cli")]
    Schema(u32),
    /// A combination of values that no machine has.
    #[error("the profile makes no sense: {0}")]
    Nonsense(&'static str),
}

impl From<toml::de::Error> for ProfileError {
    fn from(error: toml::de::Error) -> ProfileError {
        // As text, not as a source: it would be told twice. With the line in question, of any length.
        let text = error.to_string();
        let lines = text.trim_end().lines().map(|line| line.chars().take(LONGEST).collect::<String>());
        ProfileError::Syntax(lines.collect::<Vec<_>>().join("\n"))
    }
}
