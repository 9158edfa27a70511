//! What `run --try` changes.

use std::str::FromStr;

use cawl_core::Request;

/// A change of the program's calls, made while it runs.
#[derive(Clone, Debug)]
pub struct Try {
    /// As it was asked for.
    pub told: String,
    /// As the tracer reads it in CAWL_TRY.
    pub sent: String,
}

impl FromStr for Try {
    type Err = String;

    fn from_str(text: &str) -> Result<Try, String> {
        let live = |requests: Vec<Request>| requests.iter().map(Request::live).collect::<Result<Vec<_>, _>>();
        let sent =
            Request::list(text).and_then(live).map_err(|why| format!("{why}; give {}", Request::LIVE))?;
        Ok(Try { told: text.to_owned(), sent: sent.join(",") })
    }
}
