//! A call that was chosen.

use std::sync::Arc;

use cawl_core::{CauseTimes, MODELS, Shown};
use cawl_export::{Call, Told};
use cawl_wire::Event;

use crate::names::Names;
use crate::totals::Totals;

/// What a table has of a call.
pub struct Row {
    number: u64,
    /// The call.
    pub event: Event,
    path: Option<Arc<str>>,
    program: Option<Arc<str>>,
    way: Option<Arc<str>>,
    predictions: [Option<Told>; MODELS.len()],
    models: usize,
    causes: Option<CauseTimes>,
    /// The number of calls that it stands for.
    pub weight: u32,
}

impl Row {
    /// Keeps a call.
    pub fn new(
        event: &Event,
        shown: &Shown<'_>,
        names: &mut Names,
        totals: Option<&Totals>,
        weight: u32,
    ) -> Row {
        let mut predictions = [None; MODELS.len()];
        for (told, prediction) in predictions.iter_mut().zip(shown.predictions) {
            *told = prediction.as_ref().map(Told::from);
        }
        Row {
            number: shown.number,
            event: *event,
            path: names.path(event, totals),
            program: names.program(event),
            way: names.way(event),
            predictions,
            models: shown.predictions.len().min(MODELS.len()),
            causes: shown.causes.copied(),
            weight,
        }
    }

    /// As a row of a table.
    pub fn call(&self) -> Call<'_> {
        Call {
            number: self.number,
            event: &self.event,
            path: self.path.as_deref(),
            program: self.program.as_deref(),
            predictions: &self.predictions[..self.models],
            causes: self.causes.as_ref(),
            own: None,
            stack: &[],
            way: self.way.as_deref(),
            weight: self.weight,
        }
    }
}
