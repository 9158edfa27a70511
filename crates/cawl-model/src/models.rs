//! The list of the models.

use crate::cost_model::CostModel;
use crate::profile::HostProfile;
use crate::{cawl, kernel, naive};

/// Names of the models, in the order of reports; the first is the one that states and advice come from.
pub const MODELS: &[&str] = &["kernel", "cawl", "naive"];

/// The model of this name, for this machine.
pub fn build(name: &str, profile: &HostProfile) -> Option<Box<dyn CostModel>> {
    Some(match name {
        "kernel" => Box::new(kernel::Kernel::new(profile)),
        "cawl" => Box::new(cawl::Cawl::new(profile)),
        "naive" => Box::new(naive::Naive::new(profile)),
        _ => return None,
    })
}
