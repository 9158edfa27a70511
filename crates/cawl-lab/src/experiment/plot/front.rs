//! Prices against times, with the front: `design --plot`.

use cawl_core::Nanos;
use plotters::prelude::*;

use super::axis::Axis;
use super::{AGAIN, Area, MARGIN, MODEL, TEXT, dashed, dot, encode, failed, register};

const SIZE: (u32, u32) = (900, 560);
const TITLE: u32 = 44;

/// Machines by price and time.
pub struct Picture {
    /// Above it.
    pub title: String,
    /// Name of the axis of prices.
    pub price: String,
    /// Name of the axis of times.
    pub time: &'static str,
    /// The machines by price.
    pub points: Vec<Point>,
    /// The time as it is, in seconds.
    pub now: f64,
}

/// A machine.
pub struct Point {
    /// What it costs.
    pub price: f64,
    /// The time that counts, in seconds.
    pub seconds: f64,
    /// Those on the front are numbered, and joined by steps.
    pub front: bool,
}

/// The picture as SVG.
pub fn svg(picture: &Picture) -> anyhow::Result<Vec<u8>> {
    register()?;
    let mut svg = String::new();
    paint(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), picture)?;
    Ok(svg.into_bytes())
}

/// The picture as PNG.
pub fn png(picture: &Picture) -> anyhow::Result<Vec<u8>> {
    register()?;
    let mut pixels = vec![0; SIZE.0 as usize * SIZE.1 as usize * 3];
    paint(&BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area(), picture)?;
    let mut png = Vec::new();
    encode(&mut png, SIZE, &pixels)?;
    Ok(png)
}

fn paint<B: DrawingBackend>(area: &Area<'_, B>, picture: &Picture) -> anyhow::Result<()> {
    area.fill(&WHITE).map_err(failed)?;
    let (header, area) = area.split_vertically(TITLE);
    let write = |area: &Area<'_, B>, at: (i32, i32), text: &str, size: i32, colour: RGBColor| {
        let style = ("sans-serif", size).into_font().color(&colour);
        area.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
    };
    write(&header, (MARGIN, 12), &picture.title, TEXT + 3, BLACK)?;
    let prices = || picture.points.iter().map(|point| point.price);
    let (least, most) = (prices().fold(f64::INFINITY, f64::min), prices().fold(0.0, f64::max));
    let (least, most) = if least <= most { (least, most) } else { (0.0, 1.0) };
    let margin = if most > least { (most - least) * 0.08 } else { most.max(1.0) * 0.08 };
    let xs = Axis::linear((least - margin).max(0.0), most + margin, 8);
    // In ns: an axis of costs has nothing below 1.
    let ns = |seconds: f64| Nanos::seconds(seconds).get();
    let all: Vec<f64> =
        picture.points.iter().map(|point| point.seconds).chain([picture.now]).map(ns).collect();
    let ys = Axis::of_costs(&all);
    let base = area.get_base_pixel();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(36)
        .x_label_area_size(46)
        .y_label_area_size(96)
        .build_cartesian_2d(xs.clone(), ys.clone())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.08))
        .x_desc(picture.price.as_str())
        .y_desc(picture.time)
        .x_labels(xs.marks.len())
        .y_labels(ys.marks.len())
        .x_label_formatter(&|price| format!("{price:.0}"))
        .y_label_formatter(&|place| Nanos::new(ys.value(*place)).to_string())
        .label_style(("sans-serif", TEXT - 2))
        .axis_desc_style(("sans-serif", TEXT))
        .draw()
        .map_err(failed)?;
    let plot = chart.plotting_area().clone();
    let at = |price: f64, seconds: f64| {
        let (x, y) = plot.map_coordinate(&(price, ys.place(ns(seconds))));
        (x - base.0, y - base.1)
    };
    let (from, to) = (at(xs.from, picture.now), at(xs.to, picture.now));
    dashed(&area, &[from, to], AGAIN.stroke_width(1), (6, 5))?;
    write(&area, (from.0 + 6, from.1 - TEXT - 2), "now", TEXT - 2, AGAIN)?;
    for point in picture.points.iter().filter(|point| !point.front) {
        dot(&area, at(point.price, point.seconds), 4, AGAIN)?;
    }
    let front: Vec<_> = picture
        .points
        .iter()
        .filter(|point| point.front)
        .map(|point| at(point.price, point.seconds))
        .collect();
    let steps = front.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    let steps: Vec<_> = steps.chain(front.last().copied()).collect();
    area.draw(&PathElement::new(steps, MODEL[0].stroke_width(2))).map_err(failed)?;
    for (number, place) in (1..).zip(front) {
        dot(&area, place, 6, MODEL[1])?;
        write(&area, (place.0 + 9, place.1 - TEXT - 4), &number.to_string(), TEXT, BLACK)?;
    }
    area.present().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_numbered_and_others_are_dots() {
        let point = |(price, seconds, front)| Point { price, seconds, front };
        let picture = |points: &[(f64, f64, bool)]| Picture {
            title: "elapsed of 1 trace".to_owned(),
            price: "price, EUR".to_owned(),
            time: "elapsed",
            points: points.iter().copied().map(point).collect(),
            now: 3.0,
        };
        let three = picture(&[(80.0, 4.0, true), (150.0, 5.0, false), (200.0, 1e-9, true)]);
        let text = String::from_utf8(svg(&three).unwrap()).unwrap();
        let document = roxmltree::Document::parse(&text).unwrap();
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
        for wanted in ["elapsed of 1 trace", "price, EUR", "now", "1", "2", "100"] {
            assert!(texts.contains(&wanted), "no {wanted} in {texts:?}");
        }
        assert_eq!(document.descendants().filter(|node| node.has_tag_name("circle")).count(), 3);
        assert!(png(&three).unwrap().starts_with(b"\x89PNG"));
        // One, and none.
        assert!(svg(&picture(&[(0.0, 0.0, true)])).is_ok() && svg(&picture(&[])).is_ok());
    }
}
