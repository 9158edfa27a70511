//! The models in front of scenarios made for one law each, and of what is not sound. Each
//! module says what it is about.

mod hostile;
mod kernel;
mod profiles;
mod trajectories;
