//! The models in front of recorded runs, of scenarios made for one law each, and of what is not sound. Each
//! module says what it is about.

mod densities;
mod golden;
mod hostile;
mod kernel;
mod profiles;
mod recorded_runs;
mod support;
mod trajectories;
