//! `regress`: a linear model of measurements.

use std::fs::File;
use std::process::ExitCode;

use anyhow::Context;
use cawl_console::exit;
use cawl_console::inputs::unpacked;
use serde::Serialize;

use crate::args::RegressArgs;
use crate::regress::{Fit, Form, Formula, Measurements, compare, text};

/// What `--json` prints.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    fit: Fit,
    forms: Vec<Form>,
}

/// Fits the model and prints it.
pub fn regress(args: &RegressArgs) -> anyhow::Result<ExitCode> {
    let formula = Formula::parse(&args.formula).map_err(|error| exit::Usage(format!("{error:#}")))?;
    let about = || format!("cannot read the table {}", args.file.display());
    let file = File::open(&args.file).and_then(unpacked).with_context(about)?;
    let measurements = Measurements::read(file).with_context(about)?;
    let about = || format!("cannot fit `{formula}` to {}", args.file.display());
    let fit = Fit::of(&formula, &measurements).with_context(about)?;
    let answer = Answer { fit, forms: compare(&formula, &measurements)? };
    cawl_console::answer(args.json, &answer, |terminal| Ok(text(&answer.fit, &answer.forms, terminal)))
}
