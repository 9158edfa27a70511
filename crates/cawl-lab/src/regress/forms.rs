//! The forms that a cost may have, compared on measurements that they were not fitted to.

use cawl_core::median;
use serde::Serialize;

use super::fit::{FitError, solve};
use super::formula::{Expression, Formula, Term};
use super::table::{Design, Measurements};

/// Parts of the rows, each predicted from the others.
const FOLDS: usize = 10;
/// Rows are dealt to the folds at random, the same each time.
const SEED: u64 = 1;

/// Errors of a form in tenfold cross-validation, over the rows that all forms can take: the response and all
/// that is measured are above zero.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Form {
    /// `least_squares`: of absolute errors. `relative`: of errors over the response. `log_log`: of the
    /// logarithms of the response and of all that is measured, so that coefficients are exponents.
    pub form: &'static str,
    /// Rows it was fitted to.
    pub rows: usize,
    /// Median of |predicted − observed| over observed.
    pub median_relative_error: f64,
    /// Mean of the same.
    pub mean_relative_error: f64,
    /// Root of the mean square of predicted − observed, in the response's unit.
    pub root_mean_square_error: f64,
}

/// The errors of all forms; none if too few rows are above zero.
pub fn compare(formula: &Formula, measurements: &Measurements) -> anyhow::Result<Vec<Form>> {
    let absolute = measurements.design(formula)?;
    let logged = measurements.design(&logged(formula, measurements)?)?;
    let mut fold_of: Vec<usize> = (0..measurements.rows()).map(|row| row % FOLDS).collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut fold_of);
    let judge = Judge { fold_of, judged: &logged.rows, observed: &absolute };
    let (kept, relative) = over_response(&absolute);
    let forms = [
        judge.errors("least_squares", &absolute, |row, sum| (absolute.rows[row], sum)),
        judge.errors("relative", &relative, |row, sum| {
            (absolute.rows[kept[row]], sum * absolute.response[kept[row]])
        }),
        judge.errors("log_log", &logged, |row, sum| (logged.rows[row], sum.exp())),
    ];
    Ok(forms.into_iter().collect::<Result<Vec<_>, _>>().unwrap_or_default().into_iter().flatten().collect())
}

/// The formula with logarithms of the response and of all that is measured.
fn logged(formula: &Formula, measurements: &Measurements) -> anyhow::Result<Formula> {
    let log = |expression: &Expression| match expression {
        Expression::Log(_) => expression.clone(),
        other => Expression::Log(Box::new(other.clone())),
    };
    let mut terms = Vec::new();
    for term in &formula.terms {
        let mut factors = Vec::new();
        for factor in &term.0 {
            factors.push(if measurements.is_measure(factor)? { log(factor) } else { factor.clone() });
        }
        terms.push(Term(factors));
    }
    Ok(Formula { response: log(&formula.response), terms, ..*formula })
}

/// The design with each row over its response, where that is above zero; and which rows these are.
fn over_response(design: &Design) -> (Vec<usize>, Design) {
    let kept: Vec<usize> = (0..design.response.len()).filter(|row| design.response[*row] > 0.0).collect();
    let over = |column: &Vec<f64>| kept.iter().map(|row| column[*row] / design.response[*row]).collect();
    let relative = Design {
        response: over(&design.response),
        names: design.names.clone(),
        columns: design.columns.iter().map(over).collect(),
        rows: kept.iter().map(|row| design.rows[*row]).collect(),
    };
    (kept, relative)
}

struct Judge<'a> {
    /// Of each row of the table.
    fold_of: Vec<usize>,
    /// Rows of the table.
    judged: &'a [usize],
    observed: &'a Design,
}

impl Judge<'_> {
    /// The errors of one form. `predicted`: the row of the table and the response, from a row of the design
    /// and its sum of coefficients times columns.
    fn errors(
        &self,
        form: &'static str,
        design: &Design,
        predicted: impl Fn(usize, f64) -> (usize, f64),
    ) -> Result<Option<Form>, FitError> {
        let (mut relative, mut squares) = (Vec::new(), 0.0);
        for fold in 0..FOLDS {
            let in_fold = |row: &usize| self.fold_of[design.rows[*row]] == fold;
            let (tested, learned): (Vec<usize>, Vec<usize>) = (0..design.rows.len()).partition(in_fold);
            let pick = |column: &Vec<f64>| learned.iter().map(|row| column[*row]).collect();
            let solution = solve(&Design {
                response: pick(&design.response),
                names: design.names.clone(),
                columns: design.columns.iter().map(pick).collect(),
                rows: Vec::new(),
            })?;
            for row in tested {
                let parts = design.columns.iter().zip(&solution.coefficients);
                let (row, predicted) = predicted(row, parts.map(|(column, part)| column[row] * part).sum());
                if self.judged.binary_search(&row).is_err() {
                    continue;
                }
                let Ok(at) = self.observed.rows.binary_search(&row) else { continue };
                let observed = self.observed.response[at];
                relative.push((predicted - observed).abs() / observed);
                squares += (predicted - observed).powi(2);
            }
        }
        let count = relative.len() as f64;
        Ok(median(&relative).map(|median_relative_error| Form {
            form,
            rows: design.rows.len(),
            median_relative_error,
            mean_relative_error: relative.iter().sum::<f64>() / count,
            root_mean_square_error: (squares / count).sqrt(),
        }))
    }
}
