//! How models follow what is observed.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// Whose clock the models live by, and how far they follow the kernel's counters.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    Mode {
        /// The models see only the calls, their think times and the profile, and advance by their own
        /// predictions, as in the paper.
        OpenLoop = "open-loop",
        /// Model time follows the observed clock.
        #[default]
        Lockstep = "lockstep",
        /// Model time follows the observed clock; the dirty level is corrected towards the kernel's counters.
        Assimilated = "assimilated",
    }
}

/// A mode that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no mode `{0}`; the modes are open-loop, lockstep, assimilated (that of a live run, with --learn)"
)]
pub struct UnknownMode(String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| UnknownMode(text.to_owned()))
    }
}
