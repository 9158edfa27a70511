//! What is wrong with a profile.

use super::PROFILE_SCHEMA;

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
        // As text, not as a source: it would be told twice.
        ProfileError::Syntax(error.to_string().trim_end().to_owned())
    }
}
