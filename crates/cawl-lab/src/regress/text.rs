//! A fitted linear model for people.

use cawl_console::{bold, headed, percent, shown, table};

use super::fit::Fit;
use super::forms::Form;

/// The model, its coefficients, the tests of its terms, and the forms.
pub fn text(fit: &Fit, forms: &[Form], terminal: bool) -> String {
    let mut text = format!("{}\n", bold(&shown(&fit.formula), terminal));
    let missing = match fit.missing_rows {
        0 => String::new(),
        missing => format!(" ({missing} without all values left out)"),
    };
    text += &format!(
        "{} rows{missing}, R² {:.5}, AIC {:.1}\nresidual deviance {:.6} on {} degrees of freedom, null deviance \
         {:.4} on {}\n",
        fit.rows,
        fit.r_squared,
        fit.aic,
        fit.residual_deviance,
        fit.degrees_of_freedom,
        fit.null_deviance,
        fit.null_degrees_of_freedom,
    );
    let coefficients = fit.coefficients.iter().map(|one| {
        [
            shown(&one.name).into_owned(),
            number(one.estimate),
            number(one.standard_error),
            format!("{:.3}", one.t),
            probability(one.p),
            number(one.low),
            number(one.high),
        ]
    });
    let header = ["COEFFICIENT", "ESTIMATE", "STD ERROR", "T", "P", "95 % FROM", "TO"];
    headed(&mut text, &table(&header, [0], coefficients), terminal);
    if !fit.dropped.is_empty() {
        let tests = fit.dropped.iter();
        let tests =
            tests.map(|one| [shown(&one.term).into_owned(), format!("{:.3}", one.f), probability(one.p)]);
        headed(&mut text, &table(&["WITHOUT", "F", "P"], [0], tests), terminal);
    }
    if !forms.is_empty() {
        let forms = forms.iter().map(|form| {
            [
                form.form.replace('_', "-"),
                form.rows.to_string(),
                percent(Some(form.median_relative_error)),
                percent(Some(form.mean_relative_error)),
                number(form.root_mean_square_error),
            ]
        });
        let header = ["CROSS-VALIDATED", "ROWS", "MEDIAN ERROR", "MEAN ERROR", "RMS ERROR"];
        headed(&mut text, &table(&header, [0], forms), terminal);
    }
    text
}

/// Four digits.
fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e5).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let whole = value.abs().max(1e-3).log10().floor() as i32;
    format!("{value:.*}", usize::try_from(3 - whole).unwrap_or(0))
}

fn probability(p: f64) -> String {
    match p {
        _ if p < 2e-16 => "<2e-16".to_owned(),
        _ if p < 1e-3 => format!("{p:.2e}"),
        _ => format!("{p:.4}"),
    }
}
