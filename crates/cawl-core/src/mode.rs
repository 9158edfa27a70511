//! How models follow what is observed.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whose clock the models live by, and how far they follow the kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The models see only the calls, their think times and the profile, and advance by their own
    /// predictions, as in the paper.
    OpenLoop,
    /// Model time follows the observed clock.
    #[default]
    Lockstep,
    /// The same, and the dirty level is corrected towards the kernel's counters.
    Assimilated,
}

impl Mode {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::OpenLoop => "open-loop",
            Mode::Lockstep => "lockstep",
            Mode::Assimilated => "assimilated",
        }
    }
}

/// A mode that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mode `{0}`; the modes are open-loop, lockstep, assimilated")]
pub struct UnknownMode(String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        let all = [Mode::OpenLoop, Mode::Lockstep, Mode::Assimilated];
        all.into_iter().find(|mode| mode.name() == text).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}
