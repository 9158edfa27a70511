//! Figures, as SVG and PNG from the same drawing code.
//!
//! The colours are those of Okabe and Ito, which colour-blind readers can distinguish; lines differ by dashes
//! too. The font is embedded, so that a machine without fonts draws the same figure.

mod axis;
pub mod chart;
pub mod front;
mod panel;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::judge::Judged;
use super::plan::Panel;
use super::report::save;

const FONT: &[u8] = include_bytes!("../../fonts/Roboto.ttf");

/// Colours of the observed calls, of their repetitions, and of each model in the order of reports.
const OBSERVED: RGBColor = RGBColor(0, 0, 0);
const AGAIN: RGBColor = RGBColor(150, 150, 150);
const MODEL: [RGBColor; 3] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115)];
/// Length of dashes and of the gaps between them, by model; a gap of zero is a whole line.
const DASHES: [(i32, i32); 3] = [(1, 0), (9, 4), (2, 4)];
/// Colours of the dirty level: sampled, and of the two models that have one.
const SAMPLED: RGBColor = RGBColor(204, 121, 167);
const LEVEL: [RGBColor; 2] = [RGBColor(86, 180, 233), RGBColor(230, 159, 0)];

const MARGIN: i32 = 12;
const HEADER: u32 = 92;
const TEXT: i32 = 17;

/// A part of a picture.
type Area<'a, B> = DrawingArea<B, Shift>;

/// Makes the embedded font known to the library, once for all pictures.
fn register() -> anyhow::Result<()> {
    register_font("sans-serif", FontStyle::Normal, FONT)
        .map_err(|_| anyhow!("the embedded font cannot be used"))
}

/// Draws a figure into NAME.svg and NAME.png of a folder.
pub fn draw(judged: &Judged, panels: &[Panel], folder: &Path) -> anyhow::Result<()> {
    register()?;
    let size = size(panels.len());
    let file = |ending: &str| folder.join(format!("{}.{ending}", judged.experiment.name()));

    let mut svg = String::new();
    paint(&SVGBackend::with_string(&mut svg, size).into_drawing_area(), judged, panels)?;
    save(folder, &format!("{}.svg", judged.experiment.name()), svg)?;

    let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
    paint(&BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area(), judged, panels)?;
    let about = || format!("cannot write {}", file("png").display());
    encode(BufWriter::new(File::create(file("png")).with_context(about)?), size, &pixels).with_context(about)
}

fn encode(to: impl Write, (width, height): (u32, u32), pixels: &[u8]) -> anyhow::Result<()> {
    let mut encoder = png::Encoder::new(to, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    Ok(writer.finish()?)
}

/// Columns and rows of panels.
fn grid(panels: usize) -> (usize, usize) {
    let columns = if panels == 1 || panels == 3 { 1 } else { 2 };
    (columns, panels.div_ceil(columns))
}

fn size(panels: usize) -> (u32, u32) {
    let (columns, rows) = grid(panels);
    let (width, height) = if columns == 1 { (1100, 360) } else { (800, 420) };
    (width * columns as u32, HEADER + height * rows as u32)
}

fn paint<B: DrawingBackend>(area: &Area<'_, B>, judged: &Judged, panels: &[Panel]) -> anyhow::Result<()> {
    area.fill(&WHITE).map_err(failed)?;
    let (header, rest) = area.split_vertically(HEADER);
    let title = ("sans-serif", 24).into_font().color(&BLACK);
    let text = format!("{}: {}", judged.experiment.name(), judged.experiment.title());
    header.draw(&Text::new(text, (MARGIN, 10), title)).map_err(failed)?;
    legend(&header, judged, panels)?;
    let (columns, rows) = grid(panels.len());
    for ((area, panel), run) in rest.split_evenly((rows, columns)).iter().zip(panels).zip(&judged.runs) {
        panel::draw(area, panel, run)?;
    }
    area.present().map_err(failed)
}

/// Two rows above the panels, so that the legend does not cover data.
fn legend<B: DrawingBackend>(header: &Area<'_, B>, judged: &Judged, panels: &[Panel]) -> anyhow::Result<()> {
    let mut x = MARGIN;
    let mut y = 50;
    let model = |index: usize| judged.runs.first().map_or("", |run| run.models[index].model.as_str());
    let entry = |x: &mut i32, y: i32, text: &str, draw: &mut dyn FnMut(i32, i32) -> anyhow::Result<()>| {
        draw(*x, y)?;
        let style = ("sans-serif", TEXT).into_font().color(&BLACK);
        let width = header.estimate_text_size(text, &style).map_err(failed)?.0 as i32;
        header.draw(&Text::new(text.to_owned(), (*x + 36, y - 8), style)).map_err(failed)?;
        *x += 36 + width + 26;
        anyhow::Ok(())
    };
    entry(&mut x, y, "cost, observed", &mut |x, y| dot(header, (x + 14, y), 3, OBSERVED))?;
    if judged.runs.iter().any(|run| !run.series.again.is_empty()) {
        entry(&mut x, y, "observed again", &mut |x, y| dot(header, (x + 14, y), 3, AGAIN))?;
    }
    for index in 0..MODEL.len() {
        entry(&mut x, y, &format!("{} (cost)", model(index)), &mut |x, y| {
            dashed(header, &[(x, y), (x + 30, y)], MODEL[index].stroke_width(2), DASHES[index])
        })?;
    }
    if panels.iter().any(|panel| panel.dirty) {
        (x, y) = (MARGIN, 76);
        entry(&mut x, y, "dirty level, sampled (right axis)", &mut |x, y| {
            header
                .draw(&Rectangle::new([(x, y - 6), (x + 30, y + 6)], SAMPLED.mix(0.35).filled()))
                .map_err(failed)
        })?;
        for (index, colour) in LEVEL.iter().enumerate() {
            entry(&mut x, y, &format!("{} (dirty)", model(index)), &mut |x, y| {
                dashed(header, &[(x, y), (x + 30, y)], colour.stroke_width(2), DASHES[index])
            })?;
        }
    }
    if panels.iter().any(|panel| panel.starts) {
        entry(&mut x, y, "where flushing and throttling begin, by colour", &mut |x, y| {
            triangle(header, (x + 8, y), 8, OBSERVED)?;
            triangle(header, (x + 24, y), 5, MODEL[0])
        })?;
    }
    Ok(())
}

/// A filled dot, in pixels: a call.
fn dot<B: DrawingBackend>(
    area: &Area<'_, B>,
    at: (i32, i32),
    radius: i32,
    colour: RGBColor,
) -> anyhow::Result<()> {
    area.draw(&Circle::new(at, radius, colour.filled())).map_err(failed)
}

/// A triangle that points down, in pixels: an onset.
fn triangle<B: DrawingBackend>(
    area: &Area<'_, B>,
    (x, y): (i32, i32),
    size: i32,
    colour: RGBColor,
) -> anyhow::Result<()> {
    let corners = vec![(x - size, y - size), (x + size, y - size), (x, y + size)];
    area.draw(&Polygon::new(corners, colour)).map_err(failed)
}

/// A dashed line, in pixels. The library's dashes begin anew at each point.
fn dashed<B: DrawingBackend>(
    area: &Area<'_, B>,
    points: &[(i32, i32)],
    style: ShapeStyle,
    (dash, gap): (i32, i32),
) -> anyhow::Result<()> {
    if gap == 0 {
        return area.draw(&PathElement::new(points.to_vec(), style)).map_err(failed);
    }
    let period = f64::from(dash + gap);
    let mut along = 0.0;
    for pair in points.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
        let length = dx.hypot(dy);
        let at = |d: f64| {
            let part = if length > 0.0 { (d - along) / length } else { 0.0 };
            (from.0 + (dx * part).round() as i32, from.1 + (dy * part).round() as i32)
        };
        let end = along + length;
        let mut start = (along / period).floor() * period;
        while start < end {
            let (a, b) = (start.max(along), (start + f64::from(dash)).min(end));
            if a < b {
                area.draw(&PathElement::new(vec![at(a), at(b)], style)).map_err(failed)?;
            }
            start += period;
        }
        along = end;
    }
    Ok(())
}

/// Drawing errors do not implement the standard Error trait.
fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use cawl_core::{Bytes, CallState, DirtyLimits, HostProfile, MODELS, Nanos, Prediction};

    use super::super::judge::{Call, Errors, JudgedRun, ModelErrors, Series};
    use super::super::plan::Sizes;
    use super::*;
    use crate::args::Experiment;

    /// Forty calls, of which the second half are expensive.
    fn run(title: &str) -> JudgedRun {
        let call = |index: u64| {
            let cost = Nanos::millis(if index < 20 { 2.0 } else { 50.0 });
            let state = if index < 20 { CallState::Free } else { CallState::Throttle };
            let dirty = Bytes::mib(index.min(20));
            let predicted = (1..=3).map(|model| Prediction {
                cost: cost * (1.0 + 0.3 * f64::from(model)),
                dirty,
                state,
                ..Prediction::default()
            });
            Call {
                size: Bytes::mib(index + 1),
                observed: cost,
                dirty: Some(dirty),
                peak: dirty,
                predicted: predicted.collect(),
            }
        };
        let model = |name: &&str| ModelErrors {
            model: (*name).to_owned(),
            predicted_s: 1.0,
            errors: Errors::default(),
            improvement: None,
            simulation_s: 0.0,
        };
        JudgedRun {
            name: "run".to_owned(),
            title: title.to_owned(),
            args: String::new(),
            env: String::new(),
            calls: 40,
            bytes: Bytes::mib(40),
            observed_s: 1.0,
            models: MODELS.iter().map(model).collect(),
            requests: None,
            periods: Vec::new(),
            emptying: None,
            floor: None,
            series: Series {
                calls: (0..40).map(call).collect(),
                again: vec![vec![Nanos::millis(9.0); 40]],
                limits: DirtyLimits { background: Bytes::mib(12), hard: Bytes::mib(24) },
            },
        }
    }

    fn drawn(experiment: Experiment, run: impl Fn(&str) -> JudgedRun) -> (String, Vec<u8>, (u32, u32)) {
        let panels = experiment.panels(&Sizes::new(&HostProfile::uncalibrated(), None, 1.0));
        let runs = panels.iter().map(|panel| run(&panel.title)).collect();
        let folder = tempfile::tempdir().unwrap();
        draw(&Judged { experiment, runs }, &panels, folder.path()).unwrap();
        let file = |ending: &str| folder.path().join(format!("{}.{ending}", experiment.name()));
        let decoder = png::Decoder::new(std::io::BufReader::new(File::open(file("png")).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        (std::fs::read_to_string(file("svg")).unwrap(), pixels, (frame.width, frame.height))
    }

    #[test]
    fn pictures_are_whole_and_contain_their_series() {
        let whole = |experiment: Experiment| {
            let panels = experiment.panels(&Sizes::new(&HostProfile::uncalibrated(), None, 1.0)).len();
            let (svg, pixels, (width, height)) = drawn(experiment, run);
            let document = roxmltree::Document::parse(&svg).unwrap();
            let texts: Vec<&str> =
                document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
            for text in ["cost, observed", "observed again", "kernel (cost)", "cawl (cost)", "naive (cost)"] {
                assert!(texts.contains(&text), "{}: no {text}", experiment.name());
            }
            let dots = document.descendants().filter(|node| node.has_tag_name("circle")).count();
            // Each call twice, as it was recorded twice; two more in the legend.
            assert_eq!(dots, panels * 40 * 2 + 2);

            assert_eq!(pixels.len(), (width * height * 3) as usize);
            let colours: HashSet<RGBColor> =
                pixels.chunks(3).map(|pixel| RGBColor(pixel[0], pixel[1], pixel[2])).collect();
            for colour in MODEL.iter().chain(&[OBSERVED, AGAIN]) {
                assert!(colours.contains(colour), "{}: no {colour:?}", experiment.name());
            }
        };
        std::thread::scope(|threads| {
            for experiment in Experiment::resolve(&[Experiment::All]) {
                threads.spawn(move || whole(experiment));
            }
        });
    }

    #[test]
    fn many_calls_do_not_hide_the_models() {
        // True if the last model is drawn over the dots.
        let over = |times: usize| {
            let (svg, ..) = drawn(Experiment::Fig4, |title| {
                let mut run = run(title);
                let calls = &run.series.calls;
                run.series.calls = calls.iter().cycle().take(times * calls.len()).cloned().collect();
                run
            });
            let last = |what: &str| svg.rfind(what).unwrap();
            last("#0072B2") > last("<circle")
        };
        assert!(!over(1) && over(10));
    }

    #[test]
    fn flush_and_throttle_points_are_marked() {
        let (svg, ..) = drawn(Experiment::Fig6, run);
        assert_eq!(svg.matches("flushing begins").count(), 3);
        // The triangles of the panels, and two in the legend.
        assert!(svg.matches("<polygon").count() >= 3 * 6 + 2, "a triangle is missing");
        assert_eq!(svg.matches("where flushing and throttling begin").count(), 1);
        assert!(svg.contains("freerun 18 MiB") && svg.contains("hard 24 MiB"));
    }

    #[test]
    fn a_run_without_calls_or_costs_is_drawn_all_the_same() {
        let empty = |title: &str| {
            let mut run = run(title);
            run.series.calls.clear();
            run
        };
        let (nothing, ..) = drawn(Experiment::Fig7, empty);
        // Those of the legend.
        assert_eq!(nothing.matches("<circle").count(), 2);
        let free = |title: &str| {
            let mut run = run(title);
            for call in &mut run.series.calls {
                call.observed = Nanos::ZERO;
                call.predicted.iter_mut().for_each(|predicted| predicted.cost = Nanos::ZERO);
            }
            run
        };
        let (free, ..) = drawn(Experiment::Fig9, free);
        assert!(free.matches("<circle").count() > 2 && !free.contains("NaN"), "{free}");
    }
}
