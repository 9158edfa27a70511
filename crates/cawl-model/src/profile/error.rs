//! What is wrong with a profile.

use super::PROFILE_SCHEMA;

/// Letters of a line of a file that an error shows.
const LONGEST: usize = 160;

/// Why a profile could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, or a field is missing, unknown or out of range.
    #[error("the profile cannot be read: {shown}")]
    Syntax {
        /// With the line in question, below it what is wrong: several lines.
        shown: String,
        /// The line's number, and what is wrong.
        brief: String,
    },
    /// Written by a later version.
    #[error("the profile has schema {0}, this program reads up to {PROFILE_SCHEMA}; use a newer cawl-cli")]
    Schema(u32),
    /// A combination of values that no machine has.
    #[error("the profile makes no sense: {0}")]
    Nonsense(&'static str),
}

impl ProfileError {
    /// What is wrong in one line, of a file that is named beside it.
    pub fn brief(&self) -> String {
        match self {
            ProfileError::Syntax { brief, .. } => format!("{brief}; it is cut off or of another program"),
            other => other.to_string(),
        }
    }
}

impl From<toml::de::Error> for ProfileError {
    fn from(error: toml::de::Error) -> ProfileError {
        // As text, not as a source: it would be told twice. With the line in question, of any length.
        let text = error.to_string();
        let place = text.split_once("at ").and_then(|(_, rest)| rest.split_once(','));
        let place = place.map_or(String::new(), |(line, _)| format!("{line}: "));
        let message: String = error.message().chars().take(LONGEST).collect();
        let brief = place + &message.lines().collect::<Vec<_>>().join(", ");
        let lines = text.trim_end().lines().map(|line| line.chars().take(LONGEST).collect::<String>());
        ProfileError::Syntax { shown: lines.collect::<Vec<_>>().join("\n"), brief }
    }
}
