//! One panel: the calls of a run, the predictions, and the dirty level behind them.

use cawl_core::{Bytes, CallState, DirtyLimits, Nanos};
use plotters::prelude::*;

use super::axis::Axis;
use super::{AGAIN, Area, DASHES, LEVEL, MODEL, OBSERVED, SAMPLED, TEXT, dashed, dot, failed, triangle};
use crate::experiment::judge::{Call, JudgedRun, Series};
use crate::experiment::plan::{self, Panel};

/// Part of the height, at the top, for the onsets of flushing and throttling.
const BAND: f64 = 0.16;
/// Number of calls from which on the observed ones are drawn below the models, which they would hide.
const CROWDED: usize = 200;

pub fn draw<B: DrawingBackend>(area: &Area<'_, B>, panel: &Panel, run: &JudgedRun) -> anyhow::Result<()> {
    let series = &run.series;
    let shown = panel.first.unwrap_or(usize::MAX).min(series.calls.len());
    let calls = &series.calls[..shown];
    let x = match panel.axis {
        plan::Axis::Call => Axis { from: 0.0, ..Axis::linear(0.0, shown as f64 + 1.0, 8) },
        plan::Axis::Size => {
            Axis::of_bytes(calls.iter().map(|call| call.size.as_f64()).fold(0.0, f64::max) * 1.02, 8)
        }
    };
    let y = costs(calls, series, shown, panel.starts);
    let limits = series.limits;
    let right = if panel.dirty { 134 } else { 24 };
    let hard = limits.hard.as_f64().max(1.0);
    let highest = calls.iter().map(|call| call.peak.as_f64()).fold(hard, f64::max) * 1.08;
    let top = if panel.starts { highest / (1.0 - BAND) } else { highest };

    let thresholds = vec![0.0, limits.background.as_f64(), limits.freerun().as_f64(), hard];
    let mut chart = ChartBuilder::on(area)
        .caption(&run.title, ("sans-serif", 19))
        .margin(8)
        .x_label_area_size(46)
        .y_label_area_size(88)
        .right_y_label_area_size(right)
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(failed)?
        .set_secondary_coord(x.clone(), Axis::marked(top, thresholds));
    let at_call = |place: &f64| format!("{place:.0}");
    let at_size = |place: &f64| Bytes(*place as u64).to_string();
    let by_size = panel.axis == plan::Axis::Size;
    let x_label: &dyn Fn(&f64) -> String = if by_size { &at_size } else { &at_call };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.08))
        .x_desc(if by_size { "bytes per call" } else { "call" })
        .y_desc(if y.logarithmic { "cost of the call (log)" } else { "cost of the call" })
        .x_labels(x.marks.len())
        .y_labels(y.marks.len())
        .x_label_formatter(&|place| x_label(place))
        .y_label_formatter(&|place| Nanos::new(y.value(*place)).to_string())
        .label_style(("sans-serif", TEXT - 2))
        .axis_desc_style(("sans-serif", TEXT))
        .draw()
        .map_err(failed)?;
    if panel.dirty {
        chart
            .configure_secondary_axes()
            .y_desc("dirty level")
            .y_labels(4)
            .y_label_formatter(&|place| threshold(*place, limits))
            .label_style(("sans-serif", TEXT - 2))
            .axis_desc_style(("sans-serif", TEXT))
            .draw()
            .map_err(failed)?;
    }

    // Everything else is drawn in pixels, which keeps dashes even and stays within the plot.
    let base = area.get_base_pixel();
    let primary = chart.plotting_area();
    let secondary = chart.secondary_plotting_area();
    let place = |index: usize, call: &Call| if by_size { call.size.as_f64() } else { index as f64 + 1.0 };
    let cost = |at: f64, cost: Nanos| {
        let (px, py) = primary.map_coordinate(&(at, y.place(cost.get()).min(y.to)));
        (px - base.0, py - base.1)
    };
    let level = |at: f64, level: f64| {
        let (px, py) = secondary.map_coordinate(&(at, level.min(top)));
        (px - base.0, py - base.1)
    };
    let numbered = || calls.iter().enumerate();
    if panel.dirty {
        let placed: Vec<_> = numbered().map(|(index, call)| (place(index, call), call)).collect();
        levels(area, &placed, limits, (x.from, x.to), level)?;
    }
    let crowded = calls.len() > CROWDED;
    let observed = || {
        numbered().try_for_each(|(index, call)| {
            dot(area, cost(place(index, call), call.observed), if crowded { 1 } else { 3 }, OBSERVED)
        })
    };
    for costs in &series.again {
        for ((index, call), again) in numbered().zip(costs) {
            dot(area, cost(place(index, call), *again), if crowded { 1 } else { 2 }, AGAIN)?;
        }
    }
    // The models over each other from last to first; the observed calls on top, or at the bottom when there
    // are many.
    if crowded {
        observed()?;
    }
    for (model, colour) in MODEL.iter().enumerate().rev() {
        let line = numbered().map(|(index, call)| cost(place(index, call), call.predicted[model].cost));
        dashed(area, &line.collect::<Vec<_>>(), colour.stroke_width(2), DASHES[model])?;
    }
    if !crowded {
        observed()?;
    }
    if panel.starts {
        starts(area, calls, series, |index, row| {
            let height = top * (1.0 - BAND * (0.2 + 0.45 * row as f64));
            level(index.map_or(x.to, |index| index as f64 + 1.0), height)
        })?;
    }
    Ok(())
}

/// The dirty level behind the calls, sampled and modelled, and its limits from one end of the axis to the
/// other. `at` gives the place of a level.
fn levels<B: DrawingBackend>(
    area: &Area<'_, B>,
    calls: &[(f64, &Call)],
    limits: DirtyLimits,
    (from, to): (f64, f64),
    at: impl Fn(f64, f64) -> (i32, i32),
) -> anyhow::Result<()> {
    let sampled = calls.iter().filter_map(|(place, call)| Some(at(*place, call.dirty?.as_f64())));
    let mut outline: Vec<_> = sampled.collect();
    if let (Some(first), Some(last)) = (outline.first().copied(), outline.last().copied()) {
        let floor = at(0.0, 0.0).1;
        outline.extend([(last.0, floor), (first.0, floor)]);
        area.draw(&Polygon::new(outline, SAMPLED.mix(0.3))).map_err(failed)?;
    }
    for limit in [limits.background, limits.freerun(), limits.hard].map(Bytes::as_f64) {
        dashed(area, &[at(from, limit), at(to, limit)], SAMPLED.mix(0.8).into(), (3, 3))?;
    }
    for (model, colour) in LEVEL.iter().enumerate() {
        let line = calls.iter().map(|(place, call)| at(*place, call.predicted[model].dirty.as_f64()));
        dashed(area, &line.collect::<Vec<_>>(), colour.stroke_width(2), DASHES[model])?;
    }
    Ok(())
}

/// The onsets of flushing and throttling: triangles above the data, one row each, black as observed, coloured
/// as modelled. `at` gives the place of a call (or of the right end) in a row.
fn starts<B: DrawingBackend>(
    area: &Area<'_, B>,
    calls: &[Call],
    series: &Series,
    at: impl Fn(Option<usize>, usize) -> (i32, i32),
) -> anyhow::Result<()> {
    let rows = [
        ("flushing begins", series.limits.background, [CallState::Flush, CallState::Throttle].as_slice()),
        ("throttling begins", series.limits.freerun(), [CallState::Throttle].as_slice()),
    ];
    for (row, (text, limit, states)) in rows.into_iter().enumerate() {
        let style = ("sans-serif", TEXT - 2).into_font().color(&BLACK.mix(0.7));
        let (width, height) = area.estimate_text_size(text, &style).map_err(failed)?;
        let (right, y) = at(None, row);
        let corner = (right - width as i32 - 6, y - height as i32 / 2);
        area.draw(&Text::new(text, corner, style)).map_err(failed)?;
        if let Some(index) = calls.iter().position(|call| call.peak > limit) {
            triangle(area, at(Some(index), row), 8, OBSERVED)?;
        }
        for model in [1, 0] {
            let began = |call: &Call| states.contains(&call.predicted[model].state);
            if let Some(index) = calls.iter().position(began) {
                triangle(area, at(Some(index), row), 5, MODEL[model])?;
            }
        }
    }
    Ok(())
}

/// The axis of costs, with space above for the onsets if they are drawn.
fn costs(calls: &[Call], series: &Series, shown: usize, with_starts: bool) -> Axis {
    let observed = calls.iter().map(|call| call.observed);
    let predicted = calls.iter().flat_map(|call| call.predicted.iter().map(|predicted| predicted.cost));
    let again = series.again.iter().flat_map(|costs| costs.iter().take(shown).copied());
    let values: Vec<f64> = observed.chain(predicted).chain(again).map(Nanos::get).collect();
    let mut axis = Axis::of_costs(&values);
    if with_starts {
        axis.to = axis.from + (axis.to - axis.from) / (1.0 - BAND);
    }
    axis
}

/// Marks of the dirty level are the limits, by name.
fn threshold(place: f64, limits: DirtyLimits) -> String {
    let name = |limit: Bytes| (place - limit.as_f64()).abs() < 1.0;
    let which = match () {
        () if name(limits.hard) => "hard",
        () if name(limits.freerun()) => "freerun",
        () if name(limits.background) => "backgr.",
        () => return Bytes(place as u64).to_string(),
    };
    format!("{which} {}", Bytes(place as u64))
}
