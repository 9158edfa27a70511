//! Arguments of `diff`.

use std::path::PathBuf;

/// Tell what explains the difference between two runs
///
/// A and B are traces, or reports as JSON (`run --report FILE.json`, `replay --json`). The first line has the
/// operation and cause that explain most of the difference of the time in calls; then come total and elapsed
/// time, causes, operations, files, patterns, and what differs of machine and profile. docs/reference/DIFF.md
/// has each figure, and an example for continuous integration.
///
/// Exit codes: 0; 1 with --fail-above if B is slower by more, and when something failed; 2 for wrong usage.
#[derive(clap::Args)]
pub struct DiffArgs {
    /// The run before: a trace, or a report as JSON
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The run after
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Exit code 1 if the calls of B take more than those of A by this part of them: 10%
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    pub fail_above: Option<f64>,
    /// As Markdown, for a pull request
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// A percentage as a fraction.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let part = number.parse::<f64>().ok().filter(|part| part.is_finite() && *part >= 0.0);
    part.map(|part| part / 100.0).ok_or_else(|| "give a percentage of 0 or more, as in 10%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percentages() {
        assert_eq!((percent("10%"), percent("2.5"), percent("0 %")), (Ok(0.1), Ok(0.025), Ok(0.0)));
        for text in ["", "%", "-1%", "ten", "inf", "nan%", "10%%"] {
            assert!(percent(text).unwrap_err().contains("as in 10%"), "{text}");
        }
    }
}
