//! Least squares on a table of measurements: which form describes them, and how sure its coefficients are.
//!
//! The statistics are those of R's `glm` with a Gaussian family, which the O_SYNC study uses (SEEDS 004).

mod fit;
mod forms;
mod formula;
mod table;
mod text;

pub use fit::Fit;
pub use forms::{Form, compare};
pub use formula::Formula;
pub use table::Measurements;
pub use text::text;

#[cfg(test)]
mod tests;
