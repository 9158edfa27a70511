//! A linear model fitted by least squares.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

use super::formula::Formula;
use super::table::{Design, Measurements};

/// A column whose part that the others do not have is smaller than this part of it is said to depend on them.
const DEPENDENT: f64 = 1e-9;

/// A coefficient and how sure it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Coefficient {
    /// Its column: a name, a text column's name with the level, or names with `:` between them.
    pub name: String,
    /// The coefficient, in units of the response over those of the column.
    pub estimate: f64,
    /// Standard error, in the same unit.
    pub standard_error: f64,
    /// Estimate over standard error.
    pub t: f64,
    /// Probability of a |t| at least as large if the coefficient is 0 (two-sided).
    pub p: f64,
    /// Lower bound of the 95 % confidence interval.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

/// The F test of a model without a term against the model with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dropped {
    pub term: String,
    /// Growth of the residual deviance for each degree of freedom, over the residual variance.
    pub f: f64,
    /// Probability of an F at least as large if the term has no effect.
    pub p: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    pub formula: String,
    /// In the order of the formula.
    pub coefficients: Vec<Coefficient>,
    /// Part of the response's variance that the model explains.
    pub r_squared: f64,
    /// Akaike's information criterion for normal errors, as R's `glm` has it; null for an exact fit.
    pub aic: f64,
    /// Sum of the squared residuals.
    pub residual_deviance: f64,
    /// Rows less coefficients.
    pub degrees_of_freedom: usize,
    /// Sum of the squared residuals of the mean alone (without an intercept: of nothing).
    pub null_deviance: f64,
    pub null_degrees_of_freedom: usize,
    pub rows: usize,
    /// Rows left out because a value is missing.
    pub missing_rows: usize,
    /// Terms that no interaction contains.
    pub dropped: Vec<Dropped>,
}

/// Why there is no fit.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error("{rows} rows cannot tell {coefficients} coefficients; measure more, or leave out terms")]
    TooFewRows {
        /// Rows with all values.
        rows: usize,
        /// Coefficients of the model.
        coefficients: usize,
    },
    /// A column that the others give already.
    #[error("`{0}` follows from the terms before it (or is 0 everywhere); leave it out")]
    Dependent(String),
}

/// The solution of a least-squares problem.
pub struct Solution {
    /// A coefficient for each column.
    pub coefficients: Vec<f64>,
    /// (XᵀX)⁻¹ on the diagonal.
    pub variances: Vec<f64>,
    /// Sum of the squared residuals.
    pub deviance: f64,
}

/// Least squares by QR decomposition, on columns scaled to length 1, since bytes and flags may stand side by
/// side: Gram and Schmidt's, each column made orthogonal twice (Björck, Numerical Methods for Least Squares
/// Problems, 2.4.5).
pub fn solve(design: &Design) -> Result<Solution, FitError> {
    let (rows, count) = (design.response.len(), design.columns.len());
    if rows < count || count == 0 {
        return Err(FitError::TooFewRows { rows, coefficients: count });
    }
    let mut orthogonal: Vec<Vec<f64>> = Vec::with_capacity(count);
    let mut lengths = Vec::with_capacity(count);
    let mut r = vec![vec![0.0; count]; count];
    for (at, column) in design.columns.iter().enumerate() {
        let length = dot(column, column).sqrt();
        let mut left: Vec<f64> = column.iter().map(|value| value / length.max(f64::MIN_POSITIVE)).collect();
        for (before, unit) in (0..at).chain(0..at).map(|before| (before, &orthogonal[before])) {
            let part = dot(unit, &left);
            r[before][at] += part;
            left.iter_mut().zip(unit).for_each(|(value, unit)| *value -= part * unit);
        }
        let rest = dot(&left, &left).sqrt();
        if rest < DEPENDENT {
            return Err(FitError::Dependent(design.names[at].0.clone()));
        }
        left.iter_mut().for_each(|value| *value /= rest);
        r[at][at] = rest;
        orthogonal.push(left);
        lengths.push(length);
    }
    let parts: Vec<f64> = orthogonal.iter().map(|unit| dot(unit, &design.response)).collect();
    let scaled = upper_solved(&r, parts);
    let coefficients: Vec<f64> = scaled.iter().zip(&lengths).map(|(found, length)| found / length).collect();
    let mut variances = vec![0.0; count];
    for at in 0..count {
        let unit = (0..count).map(|other| f64::from(u8::from(other == at))).collect();
        let inverse = upper_solved(&r, unit);
        variances.iter_mut().zip(inverse).for_each(|(sum, value)| *sum += value * value);
    }
    variances.iter_mut().zip(&lengths).for_each(|(sum, length)| *sum /= length * length);
    let residual = |row: usize| {
        let fitted = design.columns.iter().zip(&coefficients).map(|(column, part)| column[row] * part);
        design.response[row] - fitted.sum::<f64>()
    };
    let deviance = (0..rows).map(|row| residual(row).powi(2)).sum();
    Ok(Solution { coefficients, variances, deviance })
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Solves an upper triangular system from below.
fn upper_solved(r: &[Vec<f64>], mut right: Vec<f64>) -> Vec<f64> {
    for at in (0..right.len()).rev() {
        let known: f64 = (at + 1..right.len()).map(|other| r[at][other] * right[other]).sum();
        right[at] = (right[at] - known) / r[at][at];
    }
    right
}

impl Fit {
    pub fn of(formula: &Formula, measurements: &Measurements) -> anyhow::Result<Fit> {
        let design = measurements.design(formula)?;
        let Solution { coefficients, variances, deviance } = solve(&design)?;
        let (rows, count) = (design.response.len(), coefficients.len());
        let free = rows - count;
        if free == 0 {
            return Err(FitError::TooFewRows { rows, coefficients: count }.into());
        }
        let variance = deviance / free as f64;
        let student = StudentsT::new(0.0, 1.0, free as f64)?;
        let bound = student.inverse_cdf(0.975);
        let named = design.names.iter().zip(coefficients.iter().zip(variances));
        let coefficients = named.map(|((name, _), (estimate, part))| {
            let error = (variance * part).sqrt();
            let t = estimate / error;
            Coefficient {
                name: name.clone(),
                estimate: *estimate,
                standard_error: error,
                t,
                p: 2.0 * student.sf(t.abs()),
                low: estimate - bound * error,
                high: estimate + bound * error,
            }
        });
        let mean = if formula.intercept { design.response.iter().sum::<f64>() / rows as f64 } else { 0.0 };
        let null_deviance: f64 = design.response.iter().map(|value| (value - mean).powi(2)).sum();
        let likelihood = rows as f64 * ((std::f64::consts::TAU * deviance / rows as f64).ln() + 1.0);
        Ok(Fit {
            formula: formula.to_string(),
            coefficients: coefficients.collect(),
            r_squared: 1.0 - deviance / null_deviance,
            // The variance counts as a parameter.
            aic: likelihood + 2.0 * (count + 1) as f64,
            residual_deviance: deviance,
            degrees_of_freedom: free,
            null_deviance,
            null_degrees_of_freedom: rows - usize::from(formula.intercept),
            rows,
            missing_rows: measurements.rows() - rows,
            dropped: dropped(formula, &design, deviance, free)?,
        })
    }
}

/// The tests of all terms that no interaction contains.
fn dropped(formula: &Formula, design: &Design, deviance: f64, free: usize) -> anyhow::Result<Vec<Dropped>> {
    let mut tests = Vec::new();
    for (at, term) in formula.terms.iter().enumerate() {
        let is_contained = formula.terms.iter().any(|other| other != term && term.is_part_of(other));
        let kept: Vec<usize> =
            (0..design.columns.len()).filter(|column| design.names[*column].1 != Some(at)).collect();
        if is_contained || kept.is_empty() {
            continue;
        }
        let without = Design {
            names: kept.iter().map(|column| design.names[*column].clone()).collect(),
            columns: kept.iter().map(|column| design.columns[*column].clone()).collect(),
            ..design.clone()
        };
        let freed = (design.columns.len() - kept.len()) as f64;
        let f = (solve(&without)?.deviance - deviance) / freed / (deviance / free as f64);
        let p = FisherSnedecor::new(freed, free as f64)?.sf(f.max(0.0));
        tests.push(Dropped { term: term.to_string(), f, p });
    }
    Ok(tests)
}
