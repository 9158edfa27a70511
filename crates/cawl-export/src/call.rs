//! A call as every format gets it, and its names.

use cawl_core::{Bytes, CallState, CauseTimes, CostParts, Frame, Nanos, Prediction};
use cawl_wire::Event;

/// A call with what is known of it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Its number in the trace or since the daemon started, from 1.
    pub number: u64,
    /// What was recorded.
    pub event: &'a Event,
    /// Path of its file, or the file's identity; None if it has no file.
    pub path: Option<&'a str>,
    /// Program of its process, where that is known.
    pub program: Option<&'a str>,
    /// What each model predicted.
    pub predictions: &'a [Option<Told>],
    /// What its time is divided among, if it has a cost.
    pub causes: Option<&'a CauseTimes>,
    /// What it would take undisturbed, if it has a cost.
    pub own: Option<&'a CostParts>,
    /// Where in the program it came from, innermost first; and as text ([`folded_way`]), if it is known.
    pub stack: &'a [Frame],
    /// See `stack`.
    pub way: Option<&'a str>,
    /// The number of calls that it stands for.
    pub weight: u32,
}

impl Call<'_> {
    /// What the first model predicted.
    pub fn prediction(&self) -> Option<&Told> {
        self.predictions.first()?.as_ref()
    }
}

/// What a table has of a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// The whole cost.
    pub cost: Nanos,
    /// What determined most of it.
    pub state: CallState,
    /// Modelled dirty bytes at the end of the call.
    pub dirty: Bytes,
    /// 10th and 90th percentile of the cost, where they are known.
    pub interval: Option<(Nanos, Nanos)>,
}

impl From<&Prediction> for Told {
    fn from(prediction: &Prediction) -> Told {
        let Prediction { cost, state, dirty, interval, .. } = *prediction;
        Told { cost, state, dirty, interval }
    }
}

/// The text of a call's file that has no name, as reports have it.
pub fn unnamed(dev: u64, ino: u64) -> String {
    format!("dev {dev} inode {ino}")
}

/// Functions, outermost first, with semicolons between.
pub fn folded_way(frames: &[Frame], truncated: bool) -> String {
    // A semicolon separates, and a line ends the way.
    let name = |frame: &Frame| frame.name().replace(';', ":").replace(|c: char| c.is_control(), " ");
    let cut = truncated.then(|| "[truncated]".to_owned());
    let told = frames.iter().rev().filter(|frame| !frame.is_start());
    cut.into_iter().chain(told.map(name)).collect::<Vec<_>>().join(";")
}
