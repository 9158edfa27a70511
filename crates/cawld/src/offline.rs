//! What a job of writing would cost, without a daemon: on a machine of this profile where nothing is dirty and nobody
//! else writes.

use cawl_core::{HostProfile, MODELS, Rate, Scene, Time, build};

use crate::asker::{AskError, job, predicted};
use crate::protocol::{Plan, Predicted};

/// The cost of a plan by its model, the first one if it names none; its mode means nothing here.
pub fn predict(plan: &Plan, profile: &HostProfile) -> Result<Predicted, AskError> {
    let name = plan.view.model.as_deref().unwrap_or(MODELS[0]);
    let unknown =
        || AskError::Refused(format!("there is no model `{name}`; the models are {}", MODELS.join(", ")));
    let model = build(name, profile).ok_or_else(unknown)?;
    let job = job(plan, Rate::MIN)?;
    let scene = Scene::new(model.as_ref(), Time(0), job.device.unwrap_or_default());
    let cost = cawl_core::predict(scene, &job).map_err(|error| AskError::Refused(error.to_string()))?;
    Ok(predicted(model.name(), &cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        serde_json::from_str(text).expect("a plan")
    }

    #[test]
    fn more_bytes_cost_more_and_what_makes_no_sense_is_refused() {
        let profile = HostProfile::uncalibrated();
        let cost = |text| predict(&plan(text), &profile);
        let (little, much) = (cost("{\"bytes\":1048576}").unwrap(), cost("{\"bytes\":1073741824}").unwrap());
        assert!(0.0 < little.cost_s && little.cost_s < much.cost_s, "{little:?} {much:?}");
        assert_eq!((little.model.as_str(), much.calls), (MODELS[0], 1024));
        for (bad, why) in [
            ("{\"bytes\":0}", "nothing to write"),
            ("{\"bytes\":1,\"device\":\"vda\"}", "is not a device"),
            ("{\"bytes\":1,\"at_s\":-1}", "0 or more seconds"),
            ("{\"bytes\":1,\"view\":{\"model\":\"x\"}}", "no model `x`"),
        ] {
            let error = cost(bad).expect_err(bad).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
