//! Tables of fitted models.

use cawl_console::percent;

use super::Table;
use crate::regress::{Fit, Form};

/// Coefficients with standard errors and bounds, in the units of the response over those of the columns.
pub fn coefficients(caption: &str, fit: &Fit) -> Table {
    let caption = format!(
        "{caption}: {}; AIC {:.1}, R² {:.5}, residual deviance {:.4} on {}",
        fit.formula, fit.aic, fit.r_squared, fit.residual_deviance, fit.degrees_of_freedom
    );
    let rows = fit.coefficients.iter().map(|one| {
        let [estimate, error, low, high] =
            [one.estimate, one.standard_error, one.low, one.high].map(|value| format!("{value:.3e}"));
        vec![one.name.clone(), estimate, error, format!("{:.3}", one.t), low, high]
    });
    Table::new(caption, ["coefficient", "estimate", "standard error", "t", "95 % from", "to"], rows)
}

/// How forms of a model do on rows that they were not fitted to.
pub fn forms(caption: &str, forms: &[Form]) -> Table {
    let row = |form: &Form| {
        let errors = [form.median_relative_error, form.mean_relative_error].map(|error| percent(Some(error)));
        [form.form.replace('_', "-"), form.rows.to_string()].into_iter().chain(errors).collect()
    };
    Table::new(caption, ["form", "rows", "median error", "mean error"], forms.iter().map(row))
}

pub fn listed(forms: &[Form], told: impl Fn(&Form) -> String) -> String {
    let each = forms.iter().map(|form| format!("{} {}", form.form.replace('_', "-"), told(form)));
    each.collect::<Vec<_>>().join(", ")
}
