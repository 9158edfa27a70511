//! Charts of measurements, as SVG: points and boxes on logarithmic axes. Zeros have a band of their own below
//! the axis, since a logarithm has no place for them and leaving them out would shift what is left.

use cawl_core::quantile;
use plotters::prelude::*;

use super::axis::Axis;
use super::{AGAIN, Area, MARGIN, MODEL, OBSERVED, SAMPLED, TEXT, dot, failed, register};

const SIZE: (u32, u32) = (900, 480);
/// Height of the title, and of the legend below it.
const TITLE: u32 = 40;
const LEGEND: u32 = 30;
/// Height of the band of zeros, as a part of the axis above it.
const BAND: f64 = 0.09;
/// Width of a box, as a part of what a group has.
const BOX: f64 = 0.5;

/// Colours of series, in their order.
const COLOURS: [RGBColor; 5] = [MODEL[0], MODEL[1], MODEL[2], SAMPLED, OBSERVED];

/// What an axis shows.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Its name, with the unit where marks do not have it.
    pub name: &'static str,
    /// A value as its mark tells it.
    pub label: fn(f64) -> String,
}

/// Points of one kind.
pub struct Series {
    /// Its name in the legend.
    pub name: &'static str,
    /// x and y; a y of zero or less stands in the band, an x must be above zero.
    pub points: Vec<(f64, f64)>,
}

/// Values of one group.
pub struct Group {
    /// Its name below its box.
    pub name: String,
    /// Zero or more each.
    pub values: Vec<f64>,
}

/// Points on two logarithmic axes; `same`: a line where y is x.
pub fn scatter(title: &str, x: Scale, y: Scale, series: &[Series], same: bool) -> anyhow::Result<String> {
    let all = || series.iter().flat_map(|one| &one.points);
    let xs = logarithmic(all().map(|(x, _)| *x));
    let ys = Banded::of(all().map(|(_, y)| *y));
    picture(title, |rest| {
        let (header, area) = &rest.split_vertically(LEGEND);
        legend(header, series)?;
        let at = axes(area, &xs, x.name, &|place| (x.label)(xs.value(*place)), (&ys, y))?;
        if same {
            let (from, to) = (xs.from.max(ys.floor), xs.to.min(ys.axis.to));
            let line = vec![at(from, from), at(to, to)];
            area.draw(&PathElement::new(line, AGAIN.stroke_width(1))).map_err(failed)?;
        }
        for ((one, colour), hidden) in series.iter().zip(COLOURS.iter().cycle()).zip(0..) {
            // Where points of several series are one, the first looks out below the others.
            let radius = (5 - hidden).max(3);
            for (x, y) in &one.points {
                dot(area, at(xs.place(*x), ys.place(*y)), radius, *colour)?;
            }
        }
        Ok(())
    })
}

/// A box for each group on a logarithmic axis: quartiles and median, lines to the least and the largest
/// value, and the number of zeros in the band.
pub fn boxes(title: &str, x: &'static str, y: Scale, groups: &[Group]) -> anyhow::Result<String> {
    let ys = Banded::of(groups.iter().flat_map(|group| &group.values).copied());
    let middles: Vec<f64> = (0..groups.len()).map(|at| at as f64 + 0.5).collect();
    let xs = Axis::marked(groups.len() as f64, middles);
    let named = |place: &f64| groups.get(*place as usize).map_or(String::new(), |group| group.name.clone());
    picture(title, |area| {
        let at = axes(area, &xs, x, &named, (&ys, y))?;
        for (number, group) in groups.iter().enumerate() {
            let of = |part: f64| quantile(&group.values, part).map(|value| ys.place(value));
            let [Some(least), Some(low), Some(median), Some(high), Some(most)] =
                [0.0, 0.25, 0.5, 0.75, 1.0].map(of)
            else {
                continue;
            };
            let middle = number as f64 + 0.5;
            let (left, right) = (middle - BOX / 2.0, middle + BOX / 2.0);
            let line = |from, to, width| {
                area.draw(&PathElement::new(vec![from, to], OBSERVED.stroke_width(width))).map_err(failed)
            };
            line(at(middle, least), at(middle, low), 1)?;
            line(at(middle, high), at(middle, most), 1)?;
            let corners = [at(left, high), at(right, low)];
            area.draw(&Rectangle::new(corners, MODEL[0].mix(0.3).filled())).map_err(failed)?;
            area.draw(&Rectangle::new(corners, OBSERVED.stroke_width(1))).map_err(failed)?;
            line(at(left, median), at(right, median), 3)?;
            let zeros = group.values.iter().filter(|value| **value <= 0.0).count();
            if zeros > 0 {
                let (x, y) = at(middle, ys.place(0.0));
                dot(area, (x, y), 3, OBSERVED)?;
                write(area, (x + 8, y - TEXT / 2), &format!("{zeros} of {}", group.values.len()), TEXT - 2)?;
            }
        }
        Ok(())
    })
}

/// Draws the axes and the band of zeros. Returns the pixel of a place on both.
fn axes<'a>(
    area: &Area<'a, SVGBackend<'a>>,
    xs: &Axis,
    x_name: &str,
    x_label: &dyn Fn(&f64) -> String,
    (ys, y): (&Banded, Scale),
) -> anyhow::Result<impl Fn(f64, f64) -> (i32, i32) + use<'a>> {
    let base = area.get_base_pixel();
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(36)
        .x_label_area_size(46)
        .y_label_area_size(96)
        .build_cartesian_2d(xs.clone(), ys.axis.clone())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.08))
        .x_desc(x_name)
        .y_desc(y.name)
        .x_labels(xs.marks.len())
        .y_labels(ys.axis.marks.len())
        .x_label_formatter(&x_label)
        .y_label_formatter(&|place| ys.label(*place, y))
        .label_style(("sans-serif", TEXT - 2))
        .axis_desc_style(("sans-serif", TEXT))
        .draw()
        .map_err(failed)?;
    let plot = chart.plotting_area().clone();
    let at = move |x: f64, y: f64| {
        let (px, py) = plot.map_coordinate(&(x, y));
        (px - base.0, py - base.1)
    };
    if ys.axis.from < ys.floor {
        let band = [at(xs.from, ys.axis.from), at(xs.to, ys.floor)];
        area.draw(&Rectangle::new(band, AGAIN.mix(0.25).filled())).map_err(failed)?;
    }
    Ok(at)
}

/// A logarithmic axis with a band for zeros below it, if there are any.
struct Banded {
    axis: Axis,
    /// The band's upper end.
    floor: f64,
    /// Name of the band.
    name: &'static str,
}

impl Banded {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Banded {
        let mut axis = logarithmic(values.clone());
        let floor = axis.from;
        if values.clone().any(|value| value <= 0.0) {
            axis.from -= (axis.to - axis.from) * BAND;
            axis.marks.insert(0, axis.from.midpoint(floor));
        }
        let name = if values.clone().any(|value| value < 0.0) { "0 or less" } else { "0" };
        Banded { axis, floor, name }
    }

    fn place(&self, value: f64) -> f64 {
        if value > 0.0 { value.log10() } else { self.axis.from.midpoint(self.floor) }
    }

    fn label(&self, place: f64, scale: Scale) -> String {
        if place < self.floor { self.name.to_owned() } else { (scale.label)(self.axis.value(place)) }
    }
}

/// The axis of all values above zero.
fn logarithmic(values: impl Iterator<Item = f64>) -> Axis {
    let (least, most) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    if least <= most { Axis::logarithmic(least, most) } else { Axis::logarithmic(1.0, 10.0) }
}

/// A picture with a title and what `draw` puts below it.
fn picture(
    title: &str,
    draw: impl for<'a> FnOnce(&Area<'a, SVGBackend<'a>>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    register()?;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let (header, rest) = area.split_vertically(TITLE);
        write(&header, (MARGIN, 12), title, TEXT + 2)?;
        draw(&rest)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn legend(header: &Area<'_, SVGBackend<'_>>, series: &[Series]) -> anyhow::Result<()> {
    let mut x = MARGIN;
    for (one, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        dot(header, (x + 8, 16), 4, *colour)?;
        write(header, (x + 20, 8), one.name, TEXT)?;
        let style = ("sans-serif", TEXT).into_font();
        x += 20 + header.estimate_text_size(one.name, &style.into()).map_err(failed)?.0 as i32 + 26;
    }
    Ok(())
}

fn write(area: &Area<'_, SVGBackend<'_>>, at: (i32, i32), text: &str, size: i32) -> anyhow::Result<()> {
    let style = ("sans-serif", size).into_font().color(&BLACK);
    area.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Scale = Scale { name: "blocks", label: |value| format!("{value:.0}") };
    const TIME: Scale = Scale { name: "time", label: |value| format!("{value} s") };

    /// The texts of a picture and the number of its dots.
    fn read(svg: &str) -> (Vec<String>, usize) {
        let document = roxmltree::Document::parse(svg).unwrap();
        let text = |node: roxmltree::Node<'_, '_>| node.text().map(|text| text.trim().to_owned());
        let texts = document.descendants().filter_map(text).filter(|text| !text.is_empty()).collect();
        (texts, document.descendants().filter(|node| node.has_tag_name("circle")).count())
    }

    fn has(texts: &[String], text: &str) -> bool {
        texts.iter().any(|one| one == text)
    }

    #[test]
    fn each_point_has_a_dot_and_each_series_a_name() {
        let series = [
            Series { name: "plain", points: vec![(8.0, 1e-3), (100.0, 0.0)] },
            Series { name: "synchronous", points: vec![(8.0, 1.0), (100.0, 10.0)] },
        ];
        let (texts, dots) = read(&scatter("times", BLOCKS, TIME, &series, true).unwrap());
        for text in ["times", "blocks", "time", "plain", "synchronous", "0", "0.01 s", "10"] {
            assert!(has(&texts, text), "no {text} in {texts:?}");
        }
        assert_eq!(dots, 4 + 2);
    }

    #[test]
    fn zeros_have_a_band_and_are_counted() {
        let group = |name: &str, values: &[f64]| Group { name: name.to_owned(), values: values.to_vec() };
        let groups = [group("512 B", &[0.0, 0.0, 0.5, 1.0]), group("4 KiB", &[0.1, 0.2, 0.3])];
        let (texts, dots) = read(&boxes("times", "block", TIME, &groups).unwrap());
        for text in ["512 B", "4 KiB", "0", "2 of 4", "block"] {
            assert!(has(&texts, text), "no {text} in {texts:?}");
        }
        assert_eq!(dots, 1);
        let (texts, dots) = read(&boxes("times", "block", TIME, &groups[1..]).unwrap());
        assert!(!has(&texts, "0") && dots == 0, "a band without zeros: {texts:?}");
    }

    #[test]
    fn nothing_and_nothing_but_zeros_are_drawn_all_the_same() {
        let empty = Group { name: "none".to_owned(), values: Vec::new() };
        let zero = Group { name: "zero".to_owned(), values: vec![0.0] };
        let (texts, _) = read(&boxes("", "", TIME, &[empty, zero]).unwrap());
        assert!(has(&texts, "1 of 1"), "{texts:?}");
        read(&scatter("", BLOCKS, TIME, &[], true).unwrap());
    }
}
